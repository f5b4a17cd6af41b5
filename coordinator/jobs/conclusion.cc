#include "coordinator/jobs/conclusion.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/jobs/checkpoints.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/ranks.h"
#include "coordinator/jobs/saves.h"
#include "coordinator/jobs/time_limit.h"

namespace muster::jobs {
namespace {

constexpr char kCheckpointsUnreadable[] = "CHECKPOINTS_UNREADABLE";
constexpr char kStartDoesNotFit[] = "START_DOES_NOT_FIT";

void Conclude(Job* job, State state, const std::string& reason, absl::Time now,
              const std::string& code = "") {
  job->state = state;
  job->state_reason = reason;
  job->reason_code = code;
  job->end_time = now;
  job->not_before = absl::InfinitePast();
  job->stage.clear();
  job->end_deadline = absl::InfiniteFuture();
}

void EndForTimeLimit(Job* job, absl::Time now) {
  Conclude(
      job, State::kFailed,
      absl::StrCat("it has run for its time_limit, ", absl::FormatDuration(job->plan.time_limit)),
      now, "TIME_LIMIT");
}

bool StopTookEffect(const Job& job) {
  const auto& commands = job.commands.commands();
  return std::any_of(commands.begin(), commands.end(), [](const commands::Command& command) {
    return command.kind == v1::Operation::STOP && command.applied_step.has_value();
  });
}

// The newest generation's rank says that the last save failed.
bool IsOfLastSave(const Job& job, const FailureNote& note) {
  return note.generation == job.generation && note.code == kFinalSaveFailed;
}

// The job has done all its work.
void Succeed(Job* job, absl::Time now) {
  if (!job->save_failure.has_value()) {
    return Conclude(job, State::kSucceeded, job->ended_early, now);
  }
  // Work that is not saved is not done.
  Conclude(job, State::kFailed,
           absl::StrCat("training is done, but its last save failed: ", job->save_failure->message,
                        "; ", Kept(*job)),
           now, kFinalSaveFailed);
}

// Another start would fail in the same way.
void FailForGood(Job* job, const FailureNote& root, absl::Time now) {
  const std::string kept = root.code == kFinalSaveFailed ? absl::StrCat("; ", Kept(*job)) : "";
  Conclude(job, State::kFailed, absl::StrCat(Describe(root), kept), now, root.code);
}

// The longest waits before a start.
constexpr absl::Duration kLongestAfterFailure = absl::Minutes(1);
constexpr absl::Duration kLongestAfterNodeFault = absl::Minutes(5);

std::string Waits(const Job& job, const std::string& cause) {
  if (job.not_before == absl::InfinitePast()) return absl::StrCat(cause, "; waits for slots");
  return absl::StrCat(cause, "; starts again at ",
                      absl::FormatTime("%H:%M:%S UTC", job.not_before, absl::UTCTimeZone()));
}

// FNV-1a with the final mixing of MurmurHash3: the same on every machine and in every version.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdu;
  return hash ^ (hash >> 33);
}

}  // namespace

std::optional<Failure> OwnFailure(const Job& job) {
  auto failure = RootCause(job.failures);
  if (failure.has_value() && failure->root.generation != job.generation) return std::nullopt;
  return failure;
}

bool Exits(const Job& job, uint32_t rank) {
  return job.ranks[rank].finished ||
         std::any_of(job.failures.begin(), job.failures.end(), [&](const FailureNote& note) {
           return note.rank == rank && IsOfLastSave(job, note);
         });
}

bool EndsByItself(const Job& job) {
  if (!job.live || job.ending) return false;
  return All(job, &Rank::finished) ||
         std::any_of(job.failures.begin(), job.failures.end(),
                     [&](const FailureNote& note) { return IsOfLastSave(job, note); });
}

End EndOf(const Job& job) {
  const auto failure = OwnFailure(job);
  if (!failure.has_value()) return End::kInterrupted;
  switch (failure->root.kind) {
    case FailureKind::kNodeFault:
      return End::kNodeFault;
    case FailureKind::kReported:
    case FailureKind::kLost:
      return End::kFailed;
    case FailureKind::kExitCode:
    case FailureKind::kConsequence:
      break;
  }
  // Such ends can be the consequence of a planned end, or of a failure.
  return job.interruption.empty() ? End::kFailed : End::kInterrupted;
}

absl::Duration Backoff(const Job& job, uint32_t failures_before, absl::Duration longest) {
  if (failures_before == 0) return absl::ZeroDuration();
  const absl::Duration whole = std::min(
      longest,
      absl::Seconds(1) * static_cast<int64_t>(uint64_t{1} << std::min(failures_before - 1, 20u)));
  const uint64_t hash = Hash(absl::StrCat(job.id, "/", job.generation));
  return whole * (0.5 + 0.5 * static_cast<double>(hash % 1000) / 1000);
}

void Cancel(Job* job, absl::Time now) {
  if (!job->save_failure.has_value()) {
    return Conclude(job, State::kCancelled, "stopped as asked", now);
  }
  Conclude(job, State::kCancelled,
           absl::StrCat("stopped as asked, but its last save failed: ", job->save_failure->message,
                        "; ", Kept(*job)),
           now, "SAVE_FAILED");
}

namespace {

// If a person chose a directory to start from, and its checkpoint does not fit the job: the next
// resume continues from the checkpoints that counted before.
void TakeBackUnfitStart(Job* job, absl::Time now) {
  const bool unfit =
      std::any_of(job->failures.begin(), job->failures.end(), [&](const FailureNote& note) {
        return note.generation == job->generation && note.code == kStartDoesNotFit;
      });
  const std::string from = job->start_from;
  if (!unfit || !TakeBackStart(job)) return;
  AddEvent(job, now, "START_TAKEN_BACK",
           absl::StrCat("the checkpoint in ", from,
                        " does not fit the job; its former checkpoints count again"));
}

void ConcludeGeneration(Job* job, absl::Time now) {
  const bool done = !job->ending && !job->preempted && All(*job, &Rank::finished);
  StopClock(job, now);
  job->live = false;
  job->stage.clear();
  // All work was done before the workers received the stop of the time limit.
  if (job->time_up && done && !StopTookEffect(*job)) return Succeed(job, now);
  if (job->time_up) return EndForTimeLimit(job, now);
  if (job->stop_requested) return Cancel(job, now);
  if (done) return Succeed(job, now);
  if (TimeLeft(*job, now) == absl::ZeroDuration()) return EndForTimeLimit(job, now);
  if (job->halted() || job->newest_generation_seen >= job->generation) {
    // The consequences of that are no failures.
    std::erase_if(job->failures,
                  [&](const FailureNote& note) { return note.generation == job->generation; });
  }
  if (job->halted()) {
    job->state = State::kPaused;
    job->state_reason = job->halt_reason;
    job->reason_code = kCheckpointsUnreadable;
    return;
  }
  job->state = State::kRecovering;
  job->reason_code.clear();
  job->not_before = absl::InfinitePast();
  const End end = EndOf(*job);
  if (end == End::kInterrupted) {
    // The consequences of an interruption are no failures, either.
    std::erase_if(job->failures,
                  [&](const FailureNote& note) { return note.generation == job->generation; });
    job->state_reason = Waits(*job, job->interruption.empty() ? "interrupted" : job->interruption);
    return;
  }
  const auto failure = OwnFailure(*job);
  const std::string cause = Describe(failure->root);
  if (end == End::kNodeFault) {
    job->start_failures = failure->root.code == kWorkerDidNotStart ? job->start_failures + 1 : 0;
    const absl::Duration wait = Backoff(*job, job->node_faults++, kLongestAfterNodeFault);
    if (wait > absl::ZeroDuration()) job->not_before = now + wait;
    job->state_reason = Waits(*job, cause);
    return;
  }
  job->start_failures = 0;
  if (failure->root.permanent) return FailForGood(job, failure->root, now);
  if (job->restarts_used >= job->plan.max_restarts) {
    return Conclude(job, State::kFailed,
                    absl::StrCat(cause, "; restarted ", job->restarts_used, " of ",
                                 job->plan.max_restarts, " times allowed"),
                    now);
  }
  const absl::Duration wait = Backoff(*job, job->restarts_used, kLongestAfterFailure);
  if (wait > absl::ZeroDuration()) job->not_before = now + wait;
  // The last step that rank 0 reported may be earlier than that of the failure.
  job->failed_step = std::max({job->failed_step, job->step, failure->root.step});
  job->state_reason = Waits(*job, cause);
}

}  // namespace

void Conclude(Job* job, absl::Time now) {
  ConcludeGeneration(job, now);
  // If the job halts or starts again by itself, its next generation tries the same directory.
  if (job->terminal()) TakeBackUnfitStart(job, now);
}

}  // namespace muster::jobs
