#include "coordinator/jobs/life.h"

#include <signal.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/jobs/events.h"
#include "coordinator/jobs/failure.h"
#include "coordinator/jobs/saves.h"
#include "coordinator/jobs/time_limit.h"

namespace muster::jobs {
namespace {

bool All(const Job& job, bool Rank::*flag) {
  return std::all_of(job.ranks.begin(), job.ranks.end(), [&](const Rank& r) { return r.*flag; });
}

size_t Count(const Job& job, bool Rank::*flag) {
  return std::count_if(job.ranks.begin(), job.ranks.end(), [&](const Rank& r) { return r.*flag; });
}

constexpr char kCheckpointsUnreadable[] = "CHECKPOINTS_UNREADABLE";

std::string Processes(size_t n) { return absl::StrCat(n, n == 1 ? " process" : " processes"); }

void Conclude(Job* job, State state, const std::string& reason, absl::Time now,
              const std::string& code = "") {
  job->state = state;
  job->state_reason = reason;
  job->reason_code = code;
  job->end_time = now;
  job->not_before = absl::InfinitePast();
  job->stage.clear();
  job->patience_end = absl::InfiniteFuture();
}

void EndForTimeLimit(Job* job, absl::Time now) {
  Conclude(job, State::kFailed,
      absl::StrCat("it has run for its time_limit, ", absl::FormatDuration(job->plan.time_limit)),
      now, "TIME_LIMIT");
}

// The failure that ended the newest generation; absent where none did.
std::optional<Failure> OwnFailure(const Job& job) {
  auto failure = RootCause(job.failures);
  if (failure.has_value() && failure->root.generation != job.generation) return std::nullopt;
  return failure;
}

constexpr char kFinalSaveFailed[] = "FINAL_SAVE_FAILED";

// A job that is stopped has not lost anything but what was not saved.
void Cancel(Job* job, absl::Time now) {
  if (!job->save_failure.has_value()) return Conclude(job, State::kCancelled, "stopped as asked", now);
  Conclude(job, State::kCancelled,
      absl::StrCat("stopped as asked, but its last save failed: ", job->save_failure->message, "; ",
                   Kept(*job)),
      now, "SAVE_FAILED");
}

bool StopTookEffect(const Job& job) {
  const auto& commands = job.commands.commands();
  return std::any_of(commands.begin(), commands.end(), [](const commands::Command& command) {
    return command.kind == commands::Kind::kStop && command.applied_step.has_value();
  });
}

// All its work is done.
void Succeed(Job* job, absl::Time now) {
  if (!job->save_failure.has_value()) return Conclude(job, State::kSucceeded, job->ended_early, now);
  // A worker of protocol 2 finishes also without its last checkpoint.
  Conclude(job, State::kFailed,
      absl::StrCat("training is done, but its last save failed: ", job->save_failure->message, "; ",
                   Kept(*job)),
      now, kFinalSaveFailed);
}

// Starting over would end the same way.
void FailForGood(Job* job, const FailureNote& root, absl::Time now) {
  const std::string kept = root.code == kFinalSaveFailed ? absl::StrCat("; ", Kept(*job)) : "";
  Conclude(job, State::kFailed, absl::StrCat(Describe(root), kept), now, root.code);
}

// Longest waits before a start.
constexpr absl::Duration kLongestAfterFailure = absl::Minutes(1);
constexpr absl::Duration kLongestAfterNodeFault = absl::Minutes(5);

std::string Waits(const Job& job, const std::string& cause) {
  if (job.not_before == absl::InfinitePast()) return absl::StrCat(cause, "; waits for slots");
  return absl::StrCat(cause, "; starts again at ",
                      absl::FormatTime("%H:%M:%S UTC", job.not_before, absl::UTCTimeZone()));
}

// The generation is over: what becomes of the job.
void Conclude(Job* job, absl::Time now) {
  const bool done = !job->ending && !job->preempted && All(*job, &Rank::finished);
  StopClock(job, now);
  job->live = false;
  job->stage.clear();
  // All was done before the workers heard of the limit.
  if (job->time_up && done && !StopTookEffect(*job)) return Succeed(job, now);
  if (job->time_up) return EndForTimeLimit(job, now);
  if (job->stop_requested) return Cancel(job, now);
  if (done) return Succeed(job, now);
  if (TimeLeft(*job, now) == absl::ZeroDuration()) return EndForTimeLimit(job, now);
  if (job->halted() || job->newest_generation_seen >= job->generation) {
    // What followed from that is no failure.
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
    // What followed from it is no failure either.
    std::erase_if(job->failures,
                  [&](const FailureNote& note) { return note.generation == job->generation; });
    job->state_reason =
        Waits(*job, job->interruption.empty() ? "interrupted" : job->interruption);
    return;
  }
  const auto failure = OwnFailure(*job);
  const std::string cause = Describe(failure->root);
  if (end == End::kNodeFault) {
    const absl::Duration wait = Backoff(*job, job->node_faults++, kLongestAfterNodeFault);
    if (wait > absl::ZeroDuration()) job->not_before = now + wait;
    job->state_reason = Waits(*job, cause);
    return;
  }
  if (failure->root.permanent) return FailForGood(job, failure->root, now);
  if (job->restarts_used >= job->plan.max_restarts) {
    return Conclude(job, State::kFailed,
                    absl::StrCat(cause, "; restarted ", job->restarts_used, " of ",
                                 job->plan.max_restarts, " times allowed"),
                    now);
  }
  const absl::Duration wait = Backoff(*job, job->restarts_used, kLongestAfterFailure);
  if (wait > absl::ZeroDuration()) job->not_before = now + wait;
  // The step that rank 0 told last may be an earlier one.
  job->failed_step = std::max({job->failed_step, job->step, failure->root.step});
  job->state_reason = Waits(*job, cause);
}

// It is further than where it failed: what failed before is forgiven.
void GotOn(Job* job) {
  job->restarts_used = 0;
  job->node_faults = 0;
}

// Which nodes are waited for, for people; empty: none.
std::string WaitsForNodes(const Job& job) {
  if (job.cut_off.empty()) return "";
  const std::string& first = *job.cut_off.begin();
  const std::string more =
      job.cut_off.size() > 1 ? absl::StrCat(" (and ", job.cut_off.size() - 1, " more)") : "";
  return absl::StrCat("node '", first, "'", more,
                      " is cut off; its ranks are not replaced until its agent is back, or `muster nodes "
                      "forget ",
                      first, "`");
}

// State and reason of a generation that lives.
void DescribeLive(Job* job) {
  const size_t left = job->ranks.size() - Count(*job, &Rank::exited);
  const size_t started = Count(*job, &Rank::session_started);
  job->reason_code.clear();
  if (job->stop_requested) {
    job->state = State::kStopping;
    job->state_reason = job->ending ? absl::StrCat("waits for ", Processes(left), " to end")
                        : job->time_up
                            ? absl::StrCat("its time_limit, ",
                                           absl::FormatDuration(job->plan.time_limit),
                                           ", is over; stops at the next step")
                            : "stops at the next step";
  } else if (job->ending) {
    job->state = State::kRecovering;
    const auto failure = OwnFailure(*job);
    std::string why = job->interruption.empty() ? "interrupted" : job->interruption;
    if (failure.has_value() && EndOf(*job) != End::kInterrupted) why = Describe(failure->root);
    job->state_reason = absl::StrCat(why, "; waits for ", Processes(left), " to end");
  } else if (started == job->ranks.size() && job->paused) {
    job->state = State::kPaused;
    job->state_reason = job->interruption.empty()
                            ? "as asked"
                            : absl::StrCat(job->interruption, "; ends here and goes on elsewhere");
  } else if (started == job->ranks.size() && !job->interruption.empty()) {
    job->state = State::kRunning;
    job->state_reason = absl::StrCat(job->interruption,
                                     "; saves a checkpoint at its next step and goes on elsewhere");
  } else if (started == job->ranks.size()) {
    job->state = State::kRunning;
    if (All(*job, &Rank::finished)) {
      job->state_reason = "waits for the processes to exit";
    } else {
      job->state_reason = Warning(*job);
      if (job->save_failure.has_value()) job->reason_code = "SAVE_FAILED";
    }
  } else {
    job->state = State::kStarting;
    job->state_reason = absl::StrCat(started, " of ", job->ranks.size(), " ranks are ready");
  }
  if (const std::string waits = WaitsForNodes(*job); !waits.empty()) {
    job->state_reason = job->state_reason.empty() ? waits : absl::StrCat(job->state_reason, "; ", waits);
  }
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
  return absl::StrCat(found, "; once they are there again, `muster resume ", job.id,
                      "` looks again; `muster resume ", job.id, " --from DIR` or `--from-scratch` goes on without them");
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
bool EndedAsTold(const Job& job, const Exit& exit, const Patience& patience, absl::Time now) {
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
    case Exit::Why::kPreempted:
      return absl::StrCat("node '", node, "' is needed for something else");
    case Exit::Why::kLeaseOver:
      return absl::StrCat("node '", node, "' heard nothing of the coordinator for a whole lease");
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

// FNV-1a, finished as in MurmurHash3: the same on every machine and in every version.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdu;
  return hash ^ (hash >> 33);
}

}  // namespace

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
  // These follow from a planned end as well as from a failure.
  return job.interruption.empty() ? End::kFailed : End::kInterrupted;
}

absl::Duration Backoff(const Job& job, uint32_t failures_before, absl::Duration longest) {
  if (failures_before == 0) return absl::ZeroDuration();
  const absl::Duration whole =
      std::min(longest, absl::Seconds(1) * static_cast<int64_t>(
                                               uint64_t{1} << std::min(failures_before - 1, 20u)));
  const uint64_t hash = Hash(absl::StrCat(job.id, "/", job.generation));
  return whole * (0.5 + 0.5 * static_cast<double>(hash % 1000) / 1000);
}

const char* Name(State state) {
  switch (state) {
    case State::kQueued:
      return "QUEUED";
    case State::kStarting:
      return "STARTING";
    case State::kRunning:
      return "RUNNING";
    case State::kRecovering:
      return "RECOVERING";
    case State::kStopping:
      return "STOPPING";
    case State::kSucceeded:
      return "SUCCEEDED";
    case State::kFailed:
      return "FAILED";
    case State::kCancelled:
      return "CANCELLED";
    case State::kPaused:
      return "PAUSED";
  }
  return "UNKNOWN";
}

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
  job->state_reason = absl::StrCat("goes on as attempt ", job->attempt);
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

namespace {

// Of ranks that have no input.
std::string JoinWarning(const Job& job) {
  // A rank that only accompanies the others for so many steps is worth a word: its device does
  // nothing of use.
  constexpr uint64_t kLongJoin = 100;
  size_t count = 0;
  uint32_t longest = 0;
  for (uint32_t rank = 0; rank < job.ranks.size(); ++rank) {
    const uint64_t since = job.ranks[rank].joined_since;
    if (since == 0 || job.step < since + kLongJoin - 1) continue;
    if (++count == 1 || since < job.ranks[longest].joined_since) longest = rank;
  }
  if (count == 0) return "";
  const std::string more = count > 1 ? absl::StrCat(", and ", count - 1, " more for long") : "";
  return absl::StrCat("rank ", longest, " has had no input since step ",
                      job.ranks[longest].joined_since, more);
}

}  // namespace

std::string Warning(const Job& job) {
  const std::string saves = SaveWarning(job);
  const std::string joined = JoinWarning(job);
  return absl::StrCat(saves, saves.empty() || joined.empty() ? "" : "; ", joined);
}

void OnRanksJoined(Job* job, const std::map<uint32_t, uint64_t>& since) {
  if (job->terminal() || !job->live) return;
  for (uint32_t rank = 0; rank < job->ranks.size(); ++rank) {
    const auto found = since.find(rank);
    job->ranks[rank].joined_since = found == since.end() ? 0 : found->second;
  }
  DescribeLive(job);
}

void OnFinished(Job* job, uint32_t rank, bool preempted, const Patience& patience, absl::Time now) {
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

Ended OnExit(Job* job, uint32_t rank, const Exit& exit, const Patience& patience, absl::Time now) {
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
  return job->live ? Interrupt(job, absl::StrCat("generation ", generation, " has been there before"), now) : Ended();
}

void Resume(Job* job) {
  if (!job->halted()) return;
  job->halt_reason.clear();
  job->paused = false;
  job->reason_code.clear();
  job->state = State::kRecovering;
  job->state_reason = "waits for slots";
}

Ended OnStop(Job* job, const Patience& patience, absl::Time now) {
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

Ended OnTimeUp(Job* job, const Patience& patience, absl::Time now) {
  job->time_up = true;
  return OnStop(job, patience, now);
}

void OnStopTookEffect(Job* job, const Patience& patience, absl::Time now) {
  if (job->terminal() || job->stop_requested || !job->live) return;
  job->stop_requested = true;
  if (!job->ending) job->patience_end = now + patience.stop;
  DescribeLive(job);
}

void OnStopGetsOn(Job* job, const Patience& patience, absl::Time now) {
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

void OnLoaded(Job* job, const Patience& patience, absl::Time now) {
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
