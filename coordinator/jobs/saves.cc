#include "coordinator/jobs/saves.h"

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/jobs/checkpoints.h"
#include "coordinator/jobs/events.h"

namespace muster::jobs {
namespace {

// Of saves that fail for the same reason, each tenth one is an event.
constexpr uint32_t kToldEvery = 10;

// The newest checkpoint that counts.
std::optional<Checkpoint> Newest(const Job& job) {
  const std::vector<Checkpoint> usable = Usable(job);
  if (usable.empty()) return std::nullopt;
  return usable.front();
}

std::string LastSaves(uint32_t count) {
  return count == 1 ? "the last save" : absl::StrCat("the last ", count, " saves");
}

}  // namespace

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
  const auto newest = Newest(job);
  return absl::StrCat(LastSaves(job.save_failure->count), " failed: ", job.save_failure->message,
                      !newest.has_value()
                          ? "; there is no checkpoint"
                          : absl::StrCat("; the newest checkpoint is of step ", newest->step));
}

std::string Kept(const Job& job) {
  const auto newest = Newest(job);
  std::string text = !newest.has_value() ? "no checkpoint is kept"
                                         : absl::StrCat("kept: the checkpoint of step ",
                                                        newest->step, " in ", newest->path);
  if (!job.exported_path.empty())
    absl::StrAppend(&text, "; the weights are in ", job.exported_path);
  return text;
}

}  // namespace muster::jobs
