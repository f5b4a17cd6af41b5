#include "coordinator/jobs/life.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/jobs/checkpoints.h"
#include "coordinator/jobs/conclusion.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/failure.h"
#include "coordinator/jobs/live_state.h"

namespace muster::jobs {
namespace {

// Records progress since the last failure: earlier failures do not count any more.
void MadeProgress(Job* job) {
  job->restarts_used = 0;
  job->node_faults = job->start_failures = 0;
}

void Settle(Job* job, absl::Time now) {
  if (!job->live()) return;
  if (All(*job, &Rank::exited)) {
    Conclude(job, now);
  } else {
    DescribeLive(job);
  }
}

// The time after which processes that should have ended are told to end again.
constexpr absl::Duration kRetell = absl::Seconds(10);

RanksToEnd Tell(Job* job, absl::Time now) {
  job->alive()->end_deadline = now + kRetell;
  RanksToEnd ended;
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    if (!job->ranks[rank].exited) ended.push_back(rank);
  }
  return ended;
}

RanksToEnd EndProcesses(Job* job, absl::Time now) {
  if (!job->ending()) BeginToEnd(&job->phase, now);
  return Tell(job, now);
}

// Handles a rank's failure: adds the note and ends the generation, unless it is already ending.
RanksToEnd Fail(Job* job, FailureNote note, absl::Time now) {
  AddNote(&job->failures, std::move(note));
  RanksToEnd ended;
  if (!job->ending()) ended = EndProcesses(job, now);
  Settle(job, now);
  return ended;
}

std::string HaltReason(const Job& job, const std::string& found) {
  if (!job.start_from.empty()) {
    std::string reason =
        absl::StrCat(found, "; once it can be read, `muster resume ", job.id, "` tries again; ");
    if (const Checkpoint* newest = NewestBeforeStart(job); newest != nullptr) {
      absl::StrAppend(&reason, "`muster resume ", job.id, " --from ", newest->path,
                      "` continues from the newest checkpoint that counted before; ");
    }
    return absl::StrCat(reason, "`--from DIR` or `--from-scratch` chooses another start");
  }
  return absl::StrCat(found, "; once they can be read again, `muster resume ", job.id,
                      "` tries again; `muster resume ", job.id,
                      " --from DIR` or `--from-scratch` continues without them");
}

bool Ignored(const Job& job, uint32_t rank) {
  return !job.live() || rank >= job.ranks.size() || job.ranks[rank].exited;
}

// Ends the generation although nothing failed. The first reason is kept.
RanksToEnd Interrupt(Job* job, const std::string& reason, absl::Time now) {
  std::string& why = job->alive()->interruption;
  if (why.empty()) why = reason;
  RanksToEnd ended;
  if (!job->ending()) ended = EndProcesses(job, now);
  Settle(job, now);
  return ended;
}

}  // namespace

void StartGeneration(Job* job, std::vector<Rank> ranks, absl::Time now) {
  if (!job->waiting()) return;
  if (OwnFailure(*job).has_value() && EndOf(*job) == End::kFailed) {
    ++job->restarts;
    ++job->restarts_used;
  }
  job->generation = std::max(job->generation, job->newest_generation_seen) + 1;
  job->told_before = std::max(job->told_before, job->told_commands);
  if (job->start_time == absl::InfinitePast()) job->start_time = now;
  job->ranks = std::move(ranks);
  job->cut_off.clear();
  job->phase = life::Starting{{.since = now}, PausedByCommand(job->phase)};
  Settle(job, now);
}

void OnNextAttempt(Job* job, absl::Time now) {
  const State ended = job->state();
  if (ended != State::kFailed && ended != State::kCancelled) return;
  job->ended_attempts.push_back({.attempt = job->attempt,
                                 .state = ended,
                                 .state_reason = job->state_reason,
                                 .reason_code = job->reason_code,
                                 .end_time = job->end_time(),
                                 .step = job->step});
  ++job->attempt;
  if (job->generation == 0) {
    job->phase = life::Queued();
  } else {
    job->phase = life::Recovering{life::Waiting()};
  }
  job->state_reason = absl::StrCat("continues as attempt ", job->attempt);
  job->reason_code.clear();
  job->save_failure.reset();
  job->restarts_used = job->node_faults = job->start_failures = 0;
  job->time_used = absl::ZeroDuration();
  // The next start must not count as a restart after these failures.
  job->failures.clear();
  AddEvent(job, now, "NEXT_ATTEMPT", job->state_reason);
}

void OnAttached(Job* job, uint32_t rank) {
  if (!Ignored(*job, rank)) job->ranks[rank].attached = true;
}

bool OnTrouble(Job* job, uint32_t rank, const std::string& trouble) {
  if (Ignored(*job, rank) || job->ranks[rank].trouble == trouble) return false;
  job->ranks[rank].trouble = trouble;
  DescribeLive(job);
  return true;
}

void OnSessionStarted(Job* job, uint32_t rank, uint64_t step) {
  if (Ignored(*job, rank)) return;
  job->ranks[rank].session_started = true;
  job->ranks[rank].trouble.clear();
  job->ranks[rank].step = step;
  job->start_failures = 0;
  if (rank == 0) job->step = job->started_step = step;
  DescribeLive(job);
}

void OnStep(Job* job) {
  if (!job->live()) return;
  if (job->checkpoints.empty() && job->step > job->failed_step) MadeProgress(job);
  DescribeLive(job);
}

void OnCheckpoint(Job* job, uint64_t step) {
  if (job->live() && step > job->started_step) MadeProgress(job);
}

void OnSave(Job* job) {
  if (job->live()) DescribeLive(job);
}

void OnRanksJoined(Job* job, const std::map<uint32_t, uint64_t>& since) {
  if (!job->live()) return;
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    const auto found = since.find(rank);
    job->ranks[rank].joined_since = found == since.end() ? 0 : found->second;
  }
  DescribeLive(job);
}

void OnFinished(Job* job, uint32_t rank, bool preempted, const EndTimeouts& timeouts,
                absl::Time now) {
  if (Ignored(*job, rank)) return;
  job->ranks[rank].finished = true;
  if (preempted) job->alive()->preempted = true;
  if (!job->ending() && All(*job, &Rank::finished)) {
    job->stage.clear();
    job->alive()->end_deadline = now + timeouts.stop;
  }
  Settle(job, now);
}

RanksToEnd OnFailureReport(Job* job, uint32_t rank, const ReportedFailure& failure,
                           const EndTimeouts& timeouts, absl::Time now) {
  if (Ignored(*job, rank)) return {};
  const bool found_no_start = failure.newer_generation > 0 || failure.checkpoints_unreadable;
  // The generation has not carried out any command that it received.
  if (found_no_start && !job->ranks[0].session_started) job->told_commands = job->told_before;
  if (failure.newer_generation > 0) return OnNewerGeneration(job, failure.newer_generation, now);
  if (failure.checkpoints_unreadable) {
    job->alive()->halt_reason = HaltReason(*job, failure.reason);
    return Interrupt(job, failure.reason, now);
  }
  FailureNote note =
      NoteFor(*job, rank, failure.consequence ? FailureKind::kConsequence : FailureKind::kReported,
              failure.reason);
  note.step = failure.step;
  if (failure.node_fault && !failure.consequence) note.kind = FailureKind::kNodeFault;
  note.permanent = failure.permanent && !failure.consequence;
  if (!failure.consequence) note.code = failure.code;
  // All ranks report the failed last save; one event is enough.
  if (note.code == kFinalSaveFailed && !OwnFailure(*job).has_value()) {
    AddEvent(job, now, kFinalSaveFailed, note.reason, note.step);
  }
  const bool last_save = note.code == kFinalSaveFailed;
  if (!last_save || job->ending()) return Fail(job, std::move(note), now);
  AddNote(&job->failures, std::move(note));
  job->alive()->end_deadline = now + timeouts.stop;
  Settle(job, now);
  return {};
}

RanksToEnd OnExit(Job* job, uint32_t rank, const Exit& exit, const EndTimeouts& timeouts,
                  absl::Time now) {
  if (Ignored(*job, rank)) return {};
  job->ranks[rank].exited = true;
  for (FailureNote& note : job->failures) {
    if (note.generation == job->generation && note.rank == rank && note.log_tail.empty()) {
      note.log_tail = exit.log_tail;
    }
  }
  const Exit::Why why = exit.why;
  if (Exits(*job, rank) || (job->ending() && why == Exit::Why::kStoppedAsTold)) {
    Settle(job, now);
    return {};
  }
  // A planned end also counts if one of its consequences was reported first and ended the
  // generation.
  if (IsPlanned(why)) {
    if (why == Exit::Why::kLeaseOver) DropSilence(&job->failures, job->generation, rank);
    return Interrupt(job, PlannedEnd(job->ranks[rank].node, why), now);
  }
  // A process that was lost with its agent may be the cause of the other processes' ends.
  if (!EndedWithItsAgent(exit) && EndedAsTold(*job, exit, timeouts.kill, now)) {
    Settle(job, now);
    return {};
  }
  return Fail(job, NoteForExit(*job, rank, exit), now);
}

RanksToEnd OnLost(Job* job, uint32_t rank, const Loss& loss, absl::Time now) {
  if (Ignored(*job, rank) || job->ending() || Exits(*job, rank)) return {};
  FailureNote note = NoteFor(*job, rank, FailureKind::kLost, loss.reason);
  note.collectives = loss.collectives;
  note.permanent = loss.permanent;
  return Fail(job, std::move(note), now);
}

RanksToEnd OnGone(Job* job, uint32_t rank, const std::string& reason, absl::Time now) {
  if (Ignored(*job, rank)) return {};
  job->ranks[rank].exited = true;
  if (!Exits(*job, rank)) {
    return Fail(job, NoteFor(*job, rank, FailureKind::kNodeFault, reason), now);
  }
  Settle(job, now);
  return {};
}

void OnNodeCutOff(Job* job, const std::string& node, bool cut_off) {
  if (cut_off) {
    job->cut_off.insert(node);
  } else {
    job->cut_off.erase(node);
  }
  if (job->live()) DescribeLive(job);
}

RanksToEnd OnLeaseOver(Job* job, uint32_t rank, absl::Time now) {
  if (Ignored(*job, rank)) return {};
  job->ranks[rank].exited = true;
  if (!Exits(*job, rank)) {
    return Interrupt(job, PlannedEnd(job->ranks[rank].node, Exit::Why::kLeaseOver), now);
  }
  Settle(job, now);
  return {};
}

RanksToEnd OnInterrupted(Job* job, const std::string& reason, absl::Time now) {
  if (!job->live() || job->ending() || EndsByItself(*job)) return {};
  return Interrupt(job, reason, now);
}

bool OnPreempted(Job* job, const std::string& reason, absl::Time now, RanksToEnd* ended) {
  if (!job->live() || job->ending() || job->stop_requested() || EndsByItself(*job)) return false;
  if (!All(*job, &Rank::session_started)) {
    *ended = Interrupt(job, reason, now);
    return false;
  }
  std::string& why = job->alive()->interruption;
  if (why.empty()) why = reason;
  DescribeLive(job);
  return true;
}

RanksToEnd OnNewerGeneration(Job* job, uint64_t generation, absl::Time now) {
  if (job->terminal() || generation < job->generation) return {};
  job->newest_generation_seen = std::max(job->newest_generation_seen, generation);
  return job->live() ? Interrupt(job,
                                 absl::StrCat("generation ", generation,
                                              " has already used the job's folder"),
                                 now)
                     : RanksToEnd();
}

void Resume(Job* job) {
  if (!job->halted()) return;
  job->phase = life::Recovering{life::Waiting()};
  job->reason_code.clear();
  job->state_reason = "waits for slots";
}

namespace {

RanksToEnd Stop(Job* job, life::Stopping::Why why, const EndTimeouts& timeouts, absl::Time now) {
  if (job->terminal() || job->stop_requested()) return {};
  if (!job->live()) {
    Cancel(job, now);
    return {};
  }
  const bool starting = job->state() == State::kStarting;
  BeginStop(&job->phase, why);
  // Nothing is to be saved before the session has started, and no rank carries out commands.
  RanksToEnd ended;
  if (starting) ended = EndProcesses(job, now);
  if (!job->ending()) job->alive()->end_deadline = now + timeouts.stop;
  Settle(job, now);
  return ended;
}

}  // namespace

RanksToEnd OnStop(Job* job, const EndTimeouts& timeouts, absl::Time now) {
  return Stop(job, life::Stopping::Why::kAsked, timeouts, now);
}

bool TimeIsUp(const Job& job, absl::Time now) {
  return job.live() && !job.ending() && !job.stop_requested() && !EndsByItself(job) &&
         now >= TimeLimitEnd(job);
}

RanksToEnd OnTimeUp(Job* job, const EndTimeouts& timeouts, absl::Time now) {
  return Stop(job, life::Stopping::Why::kTimeIsUp, timeouts, now);
}

void OnStopTookEffect(Job* job, const EndTimeouts& timeouts, absl::Time now) {
  if (job->stop_requested() || !job->live()) return;
  BeginStop(&job->phase, life::Stopping::Why::kAsked);
  if (!job->ending()) job->alive()->end_deadline = now + timeouts.stop;
  DescribeLive(job);
}

void OnStopProgress(Job* job, const EndTimeouts& timeouts, absl::Time now) {
  if (job->stop_requested() && !job->ending() && !EndsByItself(*job)) {
    job->alive()->end_deadline = now + timeouts.stop;
  }
}

void OnPaused(Job* job, bool paused) {
  SetPaused(&job->phase, paused);
  if (job->live()) DescribeLive(job);
}

RanksToEnd OnTick(Job* job, absl::Time now) {
  if (!job->live() || now < job->alive()->end_deadline) return {};
  // Processes that hang at their exit after all work is done do not change the job's outcome.
  if (!job->ending() && All(*job, &Rank::finished)) return Tell(job, now);
  RanksToEnd ended = EndProcesses(job, now);
  Settle(job, now);
  return ended;
}

void OnLoaded(Job* job, const EndTimeouts& timeouts, absl::Time now) {
  job->version = ++job->version_ceiling;
  job->stored_events = job->newest_event();
  job->told_commands = job->told_before = job->commands.commands().size();
  if (!job->live()) return;
  if (job->ending()) {
    BeginToEnd(&job->phase, now);
    job->alive()->end_deadline = now + kRetell;
  } else if (job->stop_requested() || EndsByItself(*job)) {
    job->alive()->end_deadline = now + timeouts.stop;
  }
}

}  // namespace muster::jobs
