#include "coordinator/jobs/conclusion.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/jobs/checkpoints.h"
#include "coordinator/jobs/events.h"

namespace muster::jobs {
namespace {

using Outcome = life::Ended::Outcome;

void Conclude(Job* job, Outcome outcome, const std::string& reason, absl::Time now,
              const std::string& code = "") {
  job->phase = life::Ended{outcome, now, job->time_up()};
  job->state_reason = reason;
  job->reason_code = code;
  job->stage.clear();
}

absl::Duration TimeLived(const JobFields& job, absl::Time now) {
  return std::max(now - job.alive()->since, absl::ZeroDuration());
}

void EndForTimeLimit(Job* job, absl::Time now) {
  Conclude(
      job, Outcome::kFailed,
      absl::StrCat("it has run for its time_limit, ", absl::FormatDuration(job->plan.time_limit)),
      now, "TIME_LIMIT");
}

bool StopTookEffect(const Job& job) {
  const auto& commands = job.commands.commands();
  return std::any_of(commands.begin(), commands.end(), [](const commands::Command& command) {
    return command.kind == v1::Operation::STOP && command.applied_step.has_value();
  });
}

// Returns whether a rank of the newest generation reports that the last save failed.
bool IsOfLastSave(const Job& job, const FailureNote& note) {
  return note.generation == job.generation && note.code == kFinalSaveFailed;
}

// Returns the reason of an end (`how`) after a failed save.
std::string Unsaved(const Job& job, const std::string& how) {
  return absl::StrCat(how, ", but its last save failed: ", job.save_failure->message, "; ",
                      Kept(job));
}

// Ends a job that has done all its work.
void Succeed(Job* job, absl::Time now) {
  if (!job->save_failure.has_value()) {
    const std::string ended_early = job->alive()->ended_early;
    return Conclude(job, Outcome::kSucceeded, ended_early, now);
  }
  // Unsaved work does not count as done.
  Conclude(job, Outcome::kFailed, Unsaved(*job, "training is done"), now, kFinalSaveFailed);
}

// Fails a job whose next start would fail in the same way.
void FailForGood(Job* job, const FailureNote& root, absl::Time now) {
  const std::string kept = root.code == kFinalSaveFailed ? absl::StrCat("; ", Kept(*job)) : "";
  Conclude(job, Outcome::kFailed, absl::StrCat(Describe(root), kept), now, root.code);
}

// The longest waits before a start.
constexpr absl::Duration kLongestAfterFailure = absl::Minutes(1);
constexpr absl::Duration kLongestAfterNodeFault = absl::Minutes(5);

// Lets the job wait for its next start, for the time `wait`.
void Wait(Job* job, const std::string& cause, absl::Duration wait, absl::Time now) {
  life::Waiting waiting;
  job->state_reason = absl::StrCat(cause, "; waits for slots");
  if (wait > absl::ZeroDuration()) {
    waiting.not_before = now + wait;
    job->state_reason =
        absl::StrCat(cause, "; starts again at ",
                     absl::FormatTime("%H:%M:%S UTC", waiting.not_before, absl::UTCTimeZone()));
  }
  job->phase = life::Recovering{waiting, PausedByCommand(job->phase)};
  job->reason_code.clear();
}

// Hashes with FNV-1a and the final mixing of MurmurHash3: the same on every machine and in every
// version.
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
  if (!job.live() || job.ending()) return false;
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
  // Such ends can be consequences of a planned end, or of a failure.
  return job.interruption().empty() ? End::kFailed : End::kInterrupted;
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
    return Conclude(job, Outcome::kCancelled, "stopped as asked", now);
  }
  Conclude(job, Outcome::kCancelled, Unsaved(*job, "stopped as asked"), now, "SAVE_FAILED");
}

namespace {

// Revokes a person's choice of a start directory if its checkpoint does not fit the job. The next
// resume continues from the checkpoints that counted before.
void TakeBackUnfitStart(Job* job, absl::Time now) {
  const bool unfit =
      std::any_of(job->failures.begin(), job->failures.end(), [&](const FailureNote& note) {
        return note.generation == job->generation && note.code == "START_DOES_NOT_FIT";
      });
  const std::string from = job->start_from;
  if (!unfit || !TakeBackStart(job)) return;
  AddEvent(job, now, "START_TAKEN_BACK",
           absl::StrCat("the checkpoint in ", from,
                        " does not fit the job; its former checkpoints count again"));
}

// Drops the newest generation's failures, which are consequences of its planned end.
void DropFailures(Job* job) {
  std::erase_if(job->failures,
                [&](const FailureNote& note) { return note.generation == job->generation; });
}

void ConcludeGeneration(Job* job, absl::Time now) {
  const life::Alive& alive = *job->alive();
  const bool done = !job->ending() && !alive.preempted && All(*job, &Rank::finished);
  const bool time_is_over = TimeLeft(*job, now) == absl::ZeroDuration();
  job->time_used += TimeLived(*job, now);
  job->stage.clear();
  // All work was done before the workers received the time limit's stop.
  if (job->time_up() && done && !StopTookEffect(*job)) return Succeed(job, now);
  if (job->time_up()) return EndForTimeLimit(job, now);
  if (job->stop_requested()) return Cancel(job, now);
  if (done) return Succeed(job, now);
  if (time_is_over) return EndForTimeLimit(job, now);
  const bool halts = !alive.halt_reason.empty();
  if (halts || job->newest_generation_seen >= job->generation) DropFailures(job);
  if (halts) {
    job->state_reason = alive.halt_reason;
    job->phase = life::Paused{life::Halted{job->state_reason}};
    job->reason_code = "CHECKPOINTS_UNREADABLE";
    return;
  }
  const End end = EndOf(*job);
  if (end == End::kInterrupted) {
    DropFailures(job);
    const std::string why = alive.interruption.empty() ? "interrupted" : alive.interruption;
    return Wait(job, why, absl::ZeroDuration(), now);
  }
  const auto failure = OwnFailure(*job);
  const std::string cause = Describe(failure->root);
  if (end == End::kNodeFault) {
    job->start_failures = failure->root.code == kWorkerDidNotStart ? job->start_failures + 1 : 0;
    const absl::Duration wait = Backoff(*job, job->node_faults++, kLongestAfterNodeFault);
    return Wait(job, cause, wait, now);
  }
  job->start_failures = 0;
  if (failure->root.permanent) return FailForGood(job, failure->root, now);
  if (job->restarts_used >= job->plan.max_restarts) {
    return Conclude(job, Outcome::kFailed,
                    absl::StrCat(cause, "; no restart is left (restart.max_restarts: ",
                                 job->plan.max_restarts, ")"),
                    now);
  }
  // The failure may be at a later step than the last step that rank 0 reported.
  job->failed_step = std::max({job->failed_step, job->step, failure->root.step});
  Wait(job, cause, Backoff(*job, job->restarts_used, kLongestAfterFailure), now);
}

}  // namespace

void Conclude(Job* job, absl::Time now) {
  ConcludeGeneration(job, now);
  // A job that halts or starts again by itself tries the same directory.
  if (job->terminal()) TakeBackUnfitStart(job, now);
}

bool HasStartedInVain(const Job& job) {
  if (!job.waiting()) return false;
  const std::optional<Failure> failure = OwnFailure(job);
  return failure.has_value() &&
         (failure->root.permanent || job.start_failures >= kMostStartFailures);
}

void FailToStart(Job* job, absl::Time now) {
  const std::optional<Failure> failure = OwnFailure(*job);
  if (!failure.has_value()) return;
  const std::string times = failure->root.permanent
                                ? ""
                                : absl::StrCat("its workers did not start ", job->start_failures,
                                               " times in a row, and ");
  Conclude(
      job, Outcome::kFailed,
      absl::StrCat(Describe(failure->root), "; ", times,
                   "no other node has room for the job; `muster retry ", job->id, "` tries again"),
      now, failure->root.code);
}

absl::Duration TimeLeft(const JobFields& job, absl::Time now) {
  const absl::Duration lived = job.live() ? TimeLived(job, now) : absl::ZeroDuration();
  return std::max(job.plan.time_limit - (job.time_used + lived), absl::ZeroDuration());
}

absl::Time TimeLimitEnd(const JobFields& job) {
  if (!job.live() || job.plan.time_limit == absl::InfiniteDuration()) return absl::InfiniteFuture();
  return job.alive()->since + (job.plan.time_limit - job.time_used);
}

}  // namespace muster::jobs
