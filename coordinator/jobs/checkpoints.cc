#include "coordinator/jobs/checkpoints.h"

#include <algorithm>
#include <tuple>

namespace muster::jobs {

std::vector<std::string> RecordCheckpoint(Job* job, Checkpoint checkpoint) {
  auto& all = job->checkpoints;
  const auto same_path = [&](const Checkpoint& c) { return c.path == checkpoint.path; };
  if (std::any_of(all.begin(), all.end(), same_path)) return {};
  all.push_back(std::move(checkpoint));
  std::sort(all.begin(), all.end(), [](const Checkpoint& a, const Checkpoint& b) {
    return std::tie(a.step, a.generation) < std::tie(b.step, b.generation);
  });
  size_t good = std::count_if(all.begin(), all.end(),
                              [](const Checkpoint& c) { return c.bad_reason.empty(); });
  std::vector<std::string> dropped;
  while (good > job->plan.keep_checkpoints || (!all.empty() && !all.front().bad_reason.empty())) {
    // The files of a damaged one were put aside by the worker that found it: they are not ours to
    // delete.
    if (all.front().bad_reason.empty()) {
      dropped.push_back(all.front().path);
      --good;
    }
    all.erase(all.begin());
  }
  job->dropped_checkpoints = dropped;
  return dropped;
}

bool MarkBad(Job* job, const std::string& path, const std::string& reason) {
  for (Checkpoint& checkpoint : job->checkpoints) {
    if (checkpoint.path != path) continue;
    checkpoint.bad_reason = reason;
    return true;
  }
  return false;
}

std::vector<Checkpoint> Usable(const Job& job) {
  std::vector<Checkpoint> usable;
  std::copy_if(job.checkpoints.rbegin(), job.checkpoints.rend(), std::back_inserter(usable),
               [](const Checkpoint& c) { return c.bad_reason.empty(); });
  return usable;
}

}  // namespace muster::jobs
