#include "coordinator/jobs/life.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/jobs/checkpoints.h"
#include "coordinator/jobs/conclusion.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/failure.h"
#include "coordinator/jobs/live_state.h"
#include "coordinator/jobs/ranks.h"
#include "coordinator/jobs/time_limit.h"

namespace muster::jobs {
namespace {

// It is further than where it failed: what failed before is forgiven.
void GotOn(Job* job) {
  job->restarts_used = 0;
  job->node_faults = 0;
}

void Settle(Job* job, absl::Time now) {
  if (!job->live) return;
  if (All(*job, &Rank::exited)) {
    Conclude(job, now);
  } else {
    DescribeLive(job);
  }
}

// Processes that should be over are told to end, again and again until they are.
constexpr absl::Duration kRetell = absl::Seconds(10);

Ended Tell(Job* job, absl::Time now) {
  job->patience_end = now + kRetell;
  Ended ended;
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    if (!job->ranks[rank].exited) ended.push_back(rank);
  }
  return ended;
}

Ended EndProcesses(Job* job, absl::Time now) {
  if (!job->ending) job->end_told = now;
  job->ending = true;
  return Tell(job, now);
}

FailureNote NoteFor(const Job& job, uint32_t rank, FailureKind kind, const std::string& reason) {
  return {.generation = job.generation,
          .rank = rank,
          .node = job.ranks[rank].node,
          .step = job.ranks[rank].step,
          .kind = kind,
          .reason = reason};
}

// A rank failed: notes it and, unless that has happened, begins the end of its generation.
Ended Fail(Job* job, FailureNote note, absl::Time now) {
  AddNote(&job->failures, std::move(note));
  Ended ended;
  if (!job->ending) ended = EndProcesses(job, now);
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
  return job.terminal() || !job.live || rank >= job.ranks.size() || job.ranks[rank].exited;
}

FailureNote NoteForExit(const Job& job, uint32_t rank, const Exit& exit) {
  FailureNote note;
  switch (exit.cause) {
    case Exit::Cause::kSignal:
      note = NoteFor(job, rank, FailureKind::kLost, absl::StrCat("killed by signal ", exit.number));
      break;
    case Exit::Cause::kStartError:
      note = NoteFor(job, rank, FailureKind::kNodeFault,
                     absl::StrCat("could not be started: ", exit.start_error));
      break;
    case Exit::Cause::kCode:
      note = NoteFor(job, rank, FailureKind::kExitCode,
                     absl::StrCat("exited with code ", exit.number, " before it finished"));
      break;
  }
  if (exit.why == Exit::Why::kNodeFault) note.kind = FailureKind::kNodeFault;
  if (!job.ranks[rank].attached && note.kind != FailureKind::kNodeFault) {
    note.kind = FailureKind::kNodeFault;
    absl::StrAppend(&note.reason, ", before it had spoken to the coordinator");
  }
  note.log_tail = exit.log_tail;
  return note;
}

// Whether a process that was told to end ended because of that. SIGKILL comes `kill` after SIGTERM,
// so an earlier one had another sender.
bool EndedAsTold(const Job& job, const Exit& exit, const EndTimeouts& patience, absl::Time now) {
  if (!job.ending) return false;
  switch (exit.cause) {
    case Exit::Cause::kStartError:
      return true;
    case Exit::Cause::kSignal:
      return exit.number == SIGTERM ||
             (exit.number == SIGKILL && now - job.end_told >= patience.kill);
    case Exit::Cause::kCode:
      return true;
  }
  return false;
}

// Why a process ended that was not to end yet, where that was planned.
std::string Interruption(const std::string& node, Exit::Why why) {
  switch (why) {
    case Exit::Why::kAgentStopped:
      return absl::StrCat("the agent of node '", node, "' was stopped");
    case Exit::Why::kDrained:
      return absl::StrCat("node '", node, "' is drained");
    case Exit::Why::kLeaseOver:
      return absl::StrCat("node '", node, "' heard nothing from the coordinator for a whole lease");
    case Exit::Why::kStoppedAsTold:
    case Exit::Why::kUnknown:
    case Exit::Why::kNodeFault:
      break;
  }
  return absl::StrCat("a process on node '", node, "' was stopped");
}

// Where the first planned end, or the wish for one, comes before any failure.
Ended Interrupt(Job* job, const std::string& reason, absl::Time now) {
  if (job->interruption.empty()) job->interruption = reason;
  Ended ended;
  if (!job->ending) ended = EndProcesses(job, now);
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
  job->live = true;
  job->cut_off.clear();
  StartClock(job, now);
  job->ending = false;
  job->patience_end = absl::InfiniteFuture();  // that of the generation before
  job->rendezvous.reset();
  job->ended_early.clear();
  job->export_granted.clear();
  job->interruption.clear();
  job->preempted = false;
  job->not_before = absl::InfinitePast();
  Settle(job, now);
}

void OnNextAttempt(Job* job, absl::Time now) {
  if (job->state != State::kFailed && job->state != State::kCancelled) return;
  job->ended_attempts.push_back({.attempt = job->attempt,
                                 .state = job->state,
                                 .state_reason = job->state_reason,
                                 .reason_code = job->reason_code,
                                 .end_time = job->end_time,
                                 .step = job->step});
  ++job->attempt;
  job->state = job->generation == 0 ? State::kQueued : State::kRecovering;
  job->state_reason = absl::StrCat("continues as attempt ", job->attempt);
  job->reason_code.clear();
  job->end_time = absl::InfinitePast();
  job->live = job->ending = job->stop_requested = job->paused = job->preempted = false;
  job->interruption.clear();
  job->halt_reason.clear();
  job->save_failure.reset();
  job->ended_early.clear();
  job->restarts_used = job->node_faults = 0;
  job->time_used = absl::ZeroDuration();
  job->time_up = false;
  job->not_before = absl::InfinitePast();
  // Its start is no restart after them.
  job->failures.clear();
  AddEvent(job, now, "NEXT_ATTEMPT", job->state_reason);
}

void OnAttached(Job* job, uint32_t rank) {
  if (!Ignored(*job, rank)) job->ranks[rank].attached = true;
}

void OnSessionStarted(Job* job, uint32_t rank, uint64_t step) {
  if (Ignored(*job, rank)) return;
  job->ranks[rank].session_started = true;
  job->ranks[rank].step = step;
  if (rank == 0) job->step = job->started_step = step;
  DescribeLive(job);
}

void OnStep(Job* job) {
  if (job->terminal() || !job->live) return;
  if (job->checkpoints.empty() && job->step > job->failed_step) GotOn(job);
  DescribeLive(job);
}

void OnCheckpoint(Job* job, uint64_t step) {
  if (!job->terminal() && job->live && step > job->started_step) GotOn(job);
}

void OnSave(Job* job) {
  if (!job->terminal() && job->live) DescribeLive(job);
}

void OnRanksJoined(Job* job, const std::map<uint32_t, uint64_t>& since) {
  if (job->terminal() || !job->live) return;
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    const auto found = since.find(rank);
    job->ranks[rank].joined_since = found == since.end() ? 0 : found->second;
  }
  DescribeLive(job);
}

void OnFinished(Job* job, uint32_t rank, bool preempted, const EndTimeouts& patience,
                absl::Time now) {
  if (Ignored(*job, rank)) return;
  job->ranks[rank].finished = true;
  if (preempted) job->preempted = true;
  if (!job->ending && All(*job, &Rank::finished)) {
    job->stage.clear();
    job->patience_end = now + patience.stop;
  }
  Settle(job, now);
}

Ended OnFailureReport(Job* job, uint32_t rank, const ReportedFailure& failure, absl::Time now) {
  if (Ignored(*job, rank)) return {};
  const bool found_no_start = failure.newer_generation > 0 || failure.checkpoints_unreadable;
  // What it was told it has not done.
  if (found_no_start && !job->ranks[0].session_started) job->told_commands = job->told_before;
  if (failure.newer_generation > 0) return OnNewerGeneration(job, failure.newer_generation, now);
  if (failure.checkpoints_unreadable) {
    job->halt_reason = HaltReason(*job, failure.reason);
    return Interrupt(job, failure.reason, now);
  }
  FailureNote note =
      NoteFor(*job, rank, failure.consequence ? FailureKind::kConsequence : FailureKind::kReported,
              failure.reason);
  note.step = failure.step;
  if (failure.node_fault && !failure.consequence) note.kind = FailureKind::kNodeFault;
  note.permanent = failure.permanent && note.kind == FailureKind::kReported;
  if (!failure.consequence) note.code = failure.code;
  // All ranks say it; once is enough.
  if (note.code == kFinalSaveFailed && !OwnFailure(*job).has_value()) {
    AddEvent(job, now, kFinalSaveFailed, note.reason, note.step);
  }
  return Fail(job, std::move(note), now);
}

Ended OnExit(Job* job, uint32_t rank, const Exit& exit, const EndTimeouts& patience,
             absl::Time now) {
  if (Ignored(*job, rank)) return {};
  job->ranks[rank].exited = true;
  for (FailureNote& note : job->failures) {
    if (note.generation == job->generation && note.rank == rank && note.log_tail.empty()) {
      note.log_tail = exit.log_tail;
    }
  }
  Exit::Why why = exit.why;
  if (exit.cause == Exit::Cause::kStartError && exit.start_error == kAgentIsStopping) {
    why = Exit::Why::kAgentStopped;
  }
  if (job->ranks[rank].finished || (job->ending && why == Exit::Why::kStoppedAsTold)) {
    Settle(job, now);
    return {};
  }
  // Also where what followed from it came first, and has ended the generation.
  if (IsPlanned(why)) return Interrupt(job, Interruption(job->ranks[rank].node, why), now);
  // One that was lost with its agent may be what the others' ends followed from.
  const bool with_its_agent = why == Exit::Why::kNodeFault && exit.cause == Exit::Cause::kSignal;
  if (!with_its_agent && EndedAsTold(*job, exit, patience, now)) {
    Settle(job, now);
    return {};
  }
  return Fail(job, NoteForExit(*job, rank, exit), now);
}

Ended OnLost(Job* job, uint32_t rank, const std::string& reason, absl::Time now,
             const std::vector<std::string>& collectives) {
  if (Ignored(*job, rank) || job->ending || job->ranks[rank].finished) return {};
  FailureNote note = NoteFor(*job, rank, FailureKind::kLost, reason);
  note.collectives = collectives;
  return Fail(job, std::move(note), now);
}

Ended OnGone(Job* job, uint32_t rank, const std::string& reason, absl::Time now) {
  if (Ignored(*job, rank)) return {};
  job->ranks[rank].exited = true;
  if (!job->ranks[rank].finished) {
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
  if (!job->terminal() && job->live) DescribeLive(job);
}

Ended OnCutOff(Job* job, uint32_t rank, absl::Time now) {
  if (Ignored(*job, rank)) return {};
  job->ranks[rank].exited = true;
  if (!job->ranks[rank].finished) {
    return Interrupt(job, Interruption(job->ranks[rank].node, Exit::Why::kLeaseOver), now);
  }
  Settle(job, now);
  return {};
}

Ended OnInterrupted(Job* job, const std::string& reason, absl::Time now) {
  if (!job->live || job->ending || All(*job, &Rank::finished)) return {};
  return Interrupt(job, reason, now);
}

bool OnPreempted(Job* job, const std::string& reason, absl::Time now, Ended* ended) {
  if (!job->live || job->ending || job->stop_requested || All(*job, &Rank::finished)) return false;
  if (!All(*job, &Rank::session_started)) {
    *ended = Interrupt(job, reason, now);
    return false;
  }
  if (job->interruption.empty()) job->interruption = reason;
  DescribeLive(job);
  return true;
}

Ended OnNewerGeneration(Job* job, uint64_t generation, absl::Time now) {
  if (job->terminal() || generation < job->generation) return {};
  job->newest_generation_seen = std::max(job->newest_generation_seen, generation);
  return job->live ? Interrupt(job,
                               absl::StrCat("generation ", generation,
                                            " has already used the job's folder"),
                               now)
                   : Ended();
}

void Resume(Job* job) {
  if (!job->halted()) return;
  job->halt_reason.clear();
  job->paused = false;
  job->reason_code.clear();
  job->state = State::kRecovering;
  job->state_reason = "waits for slots";
}

Ended OnStop(Job* job, const EndTimeouts& patience, absl::Time now) {
  if (job->terminal() || job->stop_requested) return {};
  job->stop_requested = true;
  if (!job->live) {
    Cancel(job, now);
    return {};
  }
  // Before the session stands there is nothing to save and nobody to obey a command.
  Ended ended;
  if (job->state == State::kStarting) ended = EndProcesses(job, now);
  if (!job->ending) job->patience_end = now + patience.stop;
  Settle(job, now);
  return ended;
}

bool TimeIsUp(const Job& job, absl::Time now) {
  return job.live && !job.ending && !job.stop_requested && !All(job, &Rank::finished) &&
         now >= TimeLimitEnd(job);
}

Ended OnTimeUp(Job* job, const EndTimeouts& patience, absl::Time now) {
  job->time_up = true;
  return OnStop(job, patience, now);
}

void OnStopTookEffect(Job* job, const EndTimeouts& patience, absl::Time now) {
  if (job->terminal() || job->stop_requested || !job->live) return;
  job->stop_requested = true;
  if (!job->ending) job->patience_end = now + patience.stop;
  DescribeLive(job);
}

void OnStopGetsOn(Job* job, const EndTimeouts& patience, absl::Time now) {
  if (job->live && job->stop_requested && !job->ending && !All(*job, &Rank::finished)) {
    job->patience_end = now + patience.stop;
  }
}

void OnPaused(Job* job, bool paused) {
  if (job->terminal()) return;
  job->paused = paused;
  if (job->live) DescribeLive(job);
}

Ended OnTick(Job* job, absl::Time now) {
  if (!job->live || now < job->patience_end) return {};
  // Everything was done: processes that hang at their exit do not make it undone.
  if (!job->ending && All(*job, &Rank::finished)) return Tell(job, now);
  Ended ended = EndProcesses(job, now);
  Settle(job, now);
  return ended;
}

void OnLoaded(Job* job, const EndTimeouts& patience, absl::Time now) {
  job->version = ++job->version_ceiling;
  job->stored_events = job->newest_event();
  job->told_commands = job->told_before = job->commands.commands().size();
  if (!job->live) return;
  // Of an older musterd.
  if (job->live_since == absl::InfinitePast()) StartClock(job, now);
  if (job->ending) {
    job->end_told = now;
    job->patience_end = now + kRetell;
  } else if (job->stop_requested || All(*job, &Rank::finished)) {
    job->patience_end = now + patience.stop;
  }
}

}  // namespace muster::jobs
