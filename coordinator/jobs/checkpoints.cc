#include "coordinator/jobs/checkpoints.h"

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/manifest/name.h"
#include "coordinator/jobs/events.h"

namespace muster::jobs {
namespace {

namespace fs = std::filesystem;

// The number of dropped checkpoints that are remembered because their files may still exist. A disk
// may refuse for ever to remove them.
constexpr size_t kKeptDropped = 64;
// Each tenth save that fails for the same reason is an event.
constexpr uint32_t kToldEvery = 10;

bool Earlier(const Checkpoint& a, const Checkpoint& b) {
  return std::tie(a.generation, a.step) < std::tie(b.generation, b.step);
}

bool IsGood(const Checkpoint& checkpoint) { return checkpoint.bad_reason.empty(); }

std::string NameOf(const std::string& path) { return fs::path(path).filename(); }

void ForgetPath(std::vector<Checkpoint>* checkpoints, const std::string& path) {
  std::erase_if(*checkpoints, [&](const Checkpoint& c) { return c.path == path; });
}

void Drop(Job* job, const std::string& path) {
  auto& dropped = job->dropped_checkpoints;
  if (std::find(dropped.begin(), dropped.end(), path) != dropped.end()) return;
  dropped.push_back(path);
  if (dropped.size() > kKeptDropped) dropped.erase(dropped.begin());
}

// Returns the newest checkpoint that counts; null if there is none.
const Checkpoint* Newest(const Job& job) {
  const auto newest = std::find_if(job.checkpoints.rbegin(), job.checkpoints.rend(), IsGood);
  return newest == job.checkpoints.rend() ? nullptr : &*newest;
}

std::string LastSaves(uint32_t count) {
  return count == 1 ? "the last save" : absl::StrCat("the last ", count, " saves");
}

// Sorts the checkpoints and drops the oldest beyond keep_checkpoints good ones. Checkpoints in
// `adopted`, and the newest checkpoint that is the best, are not dropped.
void Trim(Job* job, const std::vector<std::string>& adopted = {}) {
  auto& all = job->checkpoints;
  std::sort(all.begin(), all.end(), Earlier);
  // Without a good checkpoint, damaged ones stay: they show that the job has had checkpoints.
  if (std::none_of(all.begin(), all.end(), IsGood)) return;
  size_t first = all.size();  // this one and all newer ones stay
  uint32_t good = 0;
  while (first > 0 && good < job->plan.keep_checkpoints) good += IsGood(all[--first]);
  while (first < all.size() && !IsGood(all[first])) ++first;
  for (size_t i = 0; i < first; ++i) {
    if (std::find(adopted.begin(), adopted.end(), all[i].path) != adopted.end()) first = i;
  }
  const auto best = std::find_if(all.rbegin(), all.rend(), [](const Checkpoint& checkpoint) {
    return checkpoint.best && IsGood(checkpoint);
  });
  const std::string best_path = best == all.rend() ? "" : best->path;
  std::vector<Checkpoint> left;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i >= first || all[i].path == best_path) {
      left.push_back(std::move(all[i]));
    } else if (IsGood(all[i])) {
      // The worker that found a damaged checkpoint has renamed its files, which are not deleted.
      Drop(job, all[i].path);
    }
  }
  all = std::move(left);
}

// Returns why a checkpoint does not count after a decision to start from `from`. IsToGoOnFrom is
// the reason before the job has started from there. The reason after that is also reported by
// workers.
std::string IsToGoOnFrom(const std::string& from) {
  return absl::StrCat("the job should continue from ", from);
}
std::string WasToldToGoOnFrom(const std::string& from) {
  return absl::StrCat("the job was told to continue from ", from);
}

// Lets a checkpoint not count any more, and keeps it.
void Retire(Job* job, Checkpoint checkpoint, const std::string& reason) {
  // A damaged checkpoint was renamed: its path does not exist any more.
  if (!IsGood(checkpoint)) return;
  checkpoint.origin = Origin::kFound;
  checkpoint.origin_reason = reason;
  ForgetPath(&job->found_checkpoints, checkpoint.path);
  job->found_checkpoints.push_back(std::move(checkpoint));
  std::sort(job->found_checkpoints.begin(), job->found_checkpoints.end(), Earlier);
}

}  // namespace

absl::Status CheckPath(const Job& job, const Checkpoint& checkpoint) {
  const fs::path path(checkpoint.path);
  const manifest::CheckpointName expected{static_cast<int64_t>(checkpoint.step),
                                          static_cast<int64_t>(checkpoint.generation)};
  const fs::path folder = fs::path(job.plan.checkpoint_directory) / job.id;
  const bool in_folder = path.parent_path().lexically_normal() == folder.lexically_normal();
  if (job.plan.checkpoint_directory.empty()) return absl::OkStatus();  // nothing to compare with
  if (in_folder && manifest::ParseFinalName(NameOf(checkpoint.path)) == expected)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "expected ", (folder / manifest::FinalName(expected.step, expected.generation)).string(),
      ", found '", checkpoint.path, "'"));
}

void RecordCheckpoint(Job* job, Checkpoint checkpoint) {
  const auto same_path = [&](const Checkpoint& c) { return c.path == checkpoint.path; };
  if (std::any_of(job->checkpoints.begin(), job->checkpoints.end(), same_path)) return;
  ForgetPath(&job->found_checkpoints, checkpoint.path);
  job->checkpoints.push_back(std::move(checkpoint));
  // The next generation continues from this checkpoint.
  job->start_from.clear();
  Trim(job);
}

bool MarkBest(Job* job, const std::string& path) {
  for (auto* known : {&job->checkpoints, &job->found_checkpoints}) {
    for (Checkpoint& checkpoint : *known) {
      if (checkpoint.path != path) continue;
      checkpoint.best = true;
      Trim(job);
      return true;
    }
  }
  return false;
}

void Adopt(Job* job, std::vector<Checkpoint> found) {
  std::vector<std::string> adopted;
  for (Checkpoint& checkpoint : found) {
    checkpoint.origin = Origin::kAdopted;
    adopted.push_back(checkpoint.path);
    ForgetPath(&job->checkpoints, checkpoint.path);
    ForgetPath(&job->found_checkpoints, checkpoint.path);
    std::erase(job->dropped_checkpoints, checkpoint.path);
    job->checkpoints.push_back(std::move(checkpoint));
  }
  Trim(job, adopted);
}

void Keep(Job* job, Checkpoint found) {
  const auto same_path = [&](const Checkpoint& c) { return c.path == found.path; };
  if (std::any_of(job->checkpoints.begin(), job->checkpoints.end(), same_path)) return;
  const std::string reason = found.origin_reason;
  Retire(job, std::move(found), reason);
}

void Removed(Job* job, const std::vector<std::string>& names) {
  const auto gone = [&](const std::string& path) {
    return std::find(names.begin(), names.end(), NameOf(path)) != names.end();
  };
  std::erase_if(job->dropped_checkpoints, gone);
  std::erase_if(job->found_checkpoints, [&](const Checkpoint& c) { return gone(c.path); });
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
               IsGood);
  return usable;
}

std::vector<Checkpoint> NotUsable(const Job& job) {
  std::vector<Checkpoint> known = job.found_checkpoints;
  std::copy_if(job.checkpoints.begin(), job.checkpoints.end(), std::back_inserter(known),
               [](const Checkpoint& c) { return !IsGood(c); });
  for (const std::string& path : job.dropped_checkpoints) known.push_back({.path = path});
  return known;
}

std::vector<std::string> WentOnFrom(Job* job, const std::string& path) {
  const auto from = std::find_if(job->checkpoints.begin(), job->checkpoints.end(),
                                 [&](const Checkpoint& c) { return c.path == path; });
  std::vector<std::string> retired;
  if (from == job->checkpoints.end()) return retired;
  const Checkpoint start = *from;
  const auto left = std::exchange(job->checkpoints, {});
  for (const Checkpoint& checkpoint : left) {
    if (!IsGood(checkpoint) || !Earlier(start, checkpoint)) {
      job->checkpoints.push_back(checkpoint);
      continue;
    }
    Retire(job, checkpoint,
           absl::StrCat("generation ", job->generation,
                        " could not read it and continued from step ", start.step));
    retired.push_back(checkpoint.path);
  }
  return retired;
}

void DecideStart(Job* job, bool from_scratch, const std::string& from) {
  if (!from_scratch && from.empty()) return;
  // A decision that was not tried yet is replaced.
  TakeBackStart(job);
  job->from_scratch = from_scratch;
  job->start_from = from;
  // The finished stages may have worked on another state of the same step.
  job->stages_done = job->stages_done_step = 0;
  const std::string reason =
      from_scratch ? "the job was told to start again from step 0" : IsToGoOnFrom(from);
  for (Checkpoint& checkpoint : std::exchange(job->checkpoints, {})) {
    // Damaged checkpoints stay. They show that the job has had checkpoints. So the job does not
    // start again from step 0 by itself if the decision is revoked.
    const bool damaged = !from_scratch && !IsGood(checkpoint) && checkpoint.path != from;
    if (damaged || (checkpoint.path == from && IsGood(checkpoint))) {
      job->checkpoints.push_back(checkpoint);
    } else {
      Retire(job, std::move(checkpoint), reason);
    }
  }
  std::erase(job->dropped_checkpoints, from);
  if (from_scratch) job->step = 0;
}

const Checkpoint* NewestBeforeStart(const Job& job) {
  if (job.start_from.empty()) return nullptr;
  const auto& found = job.found_checkpoints;
  const auto newest = std::find_if(found.rbegin(), found.rend(), [&](const Checkpoint& checkpoint) {
    return checkpoint.origin_reason == IsToGoOnFrom(job.start_from);
  });
  return newest == found.rend() ? nullptr : &*newest;
}

bool SettleStart(Job* job) {
  if (job->start_from.empty()) return false;
  bool changed = false;
  const std::string waits = IsToGoOnFrom(job->start_from);
  for (Checkpoint& checkpoint : job->found_checkpoints) {
    if (checkpoint.origin_reason != waits) continue;
    checkpoint.origin_reason = WasToldToGoOnFrom(job->start_from);
    changed = true;
  }
  return changed;
}

bool TakeBackStart(Job* job) {
  if (job->start_from.empty()) return false;
  const std::string waits = IsToGoOnFrom(job->start_from);
  bool any = false;
  for (Checkpoint& checkpoint : std::exchange(job->found_checkpoints, {})) {
    if (checkpoint.origin_reason != waits) {
      job->found_checkpoints.push_back(std::move(checkpoint));
      continue;
    }
    checkpoint.origin = Origin::kRecorded;
    checkpoint.origin_reason.clear();
    job->checkpoints.push_back(std::move(checkpoint));
    any = true;
  }
  if (!any) return false;
  std::sort(job->checkpoints.begin(), job->checkpoints.end(), Earlier);
  job->start_from.clear();
  return true;
}

void OnSaveFailed(Job* job, uint64_t step, const std::string& message, absl::Time now) {
  const SaveFailure before = job->save_failure.value_or(SaveFailure());
  job->save_failure = {.step = step, .message = message, .time = now, .count = before.count + 1};
  const uint32_t count = job->save_failure->count;
  if (SameButForNumbers(before.message, message) && count % kToldEvery != 0) return;
  const std::string in_a_row =
      count == 1 ? "" : absl::StrCat(" (", count, " saves in a row failed)");
  AddEvent(job, now, "SAVE_FAILED", absl::StrCat(message, in_a_row), step);
}

void OnSaved(Job* job, uint64_t step, absl::Time now) {
  if (!job->save_failure.has_value()) return;
  const uint32_t count = job->save_failure->count;
  job->save_failure.reset();
  AddEvent(job, now, "SAVES_WORK_AGAIN",
           absl::StrCat("a checkpoint was written again, after ", count,
                        count == 1 ? " save" : " saves", " that failed"),
           step);
}

std::string SaveWarning(const Job& job) {
  if (!job.save_failure.has_value()) return "";
  const Checkpoint* newest = Newest(job);
  return absl::StrCat(LastSaves(job.save_failure->count), " failed: ", job.save_failure->message,
                      newest == nullptr
                          ? "; there is no checkpoint"
                          : absl::StrCat("; the newest checkpoint is of step ", newest->step));
}

std::string Kept(const Job& job) {
  const Checkpoint* newest = Newest(job);
  std::string text = newest == nullptr ? "no checkpoint is kept"
                                       : absl::StrCat("kept: the checkpoint of step ", newest->step,
                                                      " in ", newest->path);
  if (!job.exported_path.empty())
    absl::StrAppend(&text, "; the weights are in ", job.exported_path);
  return text;
}

}  // namespace muster::jobs
