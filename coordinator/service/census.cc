#include "coordinator/service/census.h"

namespace muster::service {

void Census::Saw(const jobs::Job& job) {
  const auto found = seen_.find(job.id);
  if (found != seen_.end()) {
    const Seen& before = found->second;
    if (before.state == job.state() && before.number == job.number) return;
    Deleted(job.id);
  }
  seen_[job.id] = {job.state(), job.number, job.end_time()};
  ++counts_[job.state()];
  if (!job.terminal()) {
    open_[job.number] = job.id;
    return;
  }
  Ended& ended = job.state() == jobs::State::kFailed ? failed_ : ended_;
  ended[{job.end_time(), job.number}] = job.id;
  if (ended.size() > most_ended_) ended.erase(ended.begin());
}

void Census::Deleted(const std::string& job_id) {
  const auto found = seen_.find(job_id);
  if (found == seen_.end()) return;
  const Seen& seen = found->second;
  --counts_[seen.state];
  open_.erase(seen.number);
  failed_.erase({seen.end_time, seen.number});
  ended_.erase({seen.end_time, seen.number});
  seen_.erase(found);
}

}  // namespace muster::service
