// The life of a job: (job, event, now) -> (changed job, which processes to end). Pure.
//
//   QUEUED -> STARTING -> RUNNING -> SUCCEEDED    all ranks have finished, all processes have ended
//     RUNNING -> FAILED                           the last save failed, all processes have ended
//     STARTING, RUNNING, PAUSED -> RECOVERING     a rank failed or was lost, or the generation was
//                                                 interrupted or preempted: the generation ends
//       RECOVERING -> STARTING | FAILED           all its processes have ended: the next generation
//                                                 starts, or the job fails
//       RECOVERING -> PAUSED, halted              the job has checkpoints and none can be read: it
//                                                 has no processes and no slots until Resume
//     RUNNING <-> PAUSED                          a client asked for it
//   any with processes -> STOPPING -> FAILED      its time_limit is used up
//   any state above except SUCCEEDED and FAILED -> STOPPING -> CANCELLED
//                                                 a client asked for a stop (a job that has no
//                                                 processes is CANCELLED at once)
//   FAILED, CANCELLED -> QUEUED | RECOVERING      a client asked for the next attempt
//
// A generation is one set of processes. All of them end together. The next generation starts when
// none of them is left, and generation numbers only grow. Only the next attempt leaves a terminal
// state; all other events are ignored in it.
//
// The cost of the next start depends on how the generation ended (EndOf in conclusion.h):
// - After an interruption (the agent was stopped, the node drained, the lease over): nothing.
// - After a fault of a node: no restart. From the second fault in a row on, a wait.
// - After a failure of the job itself: one of plan.max_restarts, and from the second on also a
//   wait.
// All restarts are available again when the job makes progress. Progress is the first checkpoint
// after the restart. Without any checkpoint, progress is a step after the step of the failure.
// docs/internals/protocol-coordinator.md gives the lengths of the waits.
#ifndef MUSTER_COORDINATOR_JOBS_LIFE_H_
#define MUSTER_COORDINATOR_JOBS_LIFE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/jobs/failure.h"
#include "coordinator/jobs/job.h"

namespace muster::jobs {

struct EndTimeouts {
  // The time that a stop command may wait to take effect while nothing makes progress. Also the
  // time for processes that exit by themselves (EndsByItself in conclusion.h).
  absl::Duration stop = absl::Seconds(30);
  // The time between SIGTERM and SIGKILL.
  absl::Duration kill = absl::Seconds(2);
};

// The ranks whose processes still run and must be told to end.
using RanksToEnd = std::vector<uint32_t>;

// Starts a new generation; `ranks` have the node, the slot and the incarnation of each process. No
// effect unless the job is waiting(). A start after a failure of the job itself counts as a
// restart.
void StartGeneration(Job* job, std::vector<Rank> ranks, absl::Time now);

// Records why the rank cannot start, in its worker's words; empty if nothing prevents the start.
// True if the trouble changed.
bool OnTrouble(Job* job, uint32_t rank, const std::string& trouble);

// Records that the rank's communicators are connected and its model is loaded. `step`: optimizer
// steps done at the start.
void OnSessionStarted(Job* job, uint32_t rank, uint64_t step);

// Records that the newest step is job->step.
void OnStep(Job* job);

// Handles a change of job->save_failure.
void OnSave(Job* job);

// Sets the ranks that have joined, which have no input left in this epoch. `since`: their first
// steps without input, by rank. All other ranks have input.
void OnRanksJoined(Job* job, const std::map<uint32_t, uint64_t>& since);

// Records that the rank has finished. `preempted`: the rank ended before its work was done, because
// the job should continue on other nodes.
void OnFinished(Job* job, uint32_t rank, bool preempted, const EndTimeouts& timeouts,
                absl::Time now);

// Handles a checkpoint that the newest generation has written and that is recorded, so a start may
// use it. Counts as progress if the checkpoint's step is later than the step at which the
// generation started.
void OnCheckpoint(Job* job, uint64_t step);

// Records that the process has attached.
void OnAttached(Job* job, uint32_t rank);

// A worker's report that it failed.
struct ReportedFailure {
  uint64_t step = 0;
  std::string reason;
  bool consequence = false;
  bool permanent = false;
  // The same as FailureNote::code.
  std::string code;
  // Whether none of the job's checkpoints can be read. Then the job halts.
  bool checkpoints_unreadable = false;
  // A newer generation that the job's folder names; 0 if there is none. The next generation gets a
  // higher number.
  uint64_t newer_generation = 0;
  // Whether the node is at fault: a missing mount, no permission.
  bool node_fault = false;
};
// Handles a failure. A failed last save ends no process: all ranks report it and exit by themselves
// (EndsByItself).
RanksToEnd OnFailureReport(Job* job, uint32_t rank, const ReportedFailure& failure,
                           const EndTimeouts& timeouts, absl::Time now);

// Begins the next attempt of a job that FAILED or was CANCELLED. Its generations, commands and
// checkpoints continue, and all its restarts are available again. NextAttempt in cluster/handlers
// decides before whether this is allowed. No effect on a job in another state.
void OnNextAttempt(Job* job, absl::Time now);

// Handles the end of a process.
RanksToEnd OnExit(Job* job, uint32_t rank, const Exit& exit, const EndTimeouts& timeouts,
                  absl::Time now);

// The reason why a process counts as lost: silence, or a hang.
struct Loss {
  std::string reason;
  // The same as in FailureNote.
  std::vector<std::string> collectives = {};
  bool permanent = false;
};
// Handles a process that is silent while its agent answers, or that hangs. The loss counts as a
// failure of the job. The process may still exist.
RanksToEnd OnLost(Job* job, uint32_t rank, const Loss& loss, absl::Time now);

// Handles a process that ended together with its agent, or that does not end although it was
// killed. Both count as a fault of the node. The process counts as ended.
RanksToEnd OnGone(Job* job, uint32_t rank, const std::string& reason, absl::Time now);

// Records that a node of a job with `when_cut_off: continue` is cut off (its agent is silent), or
// is back. The processes on a cut-off node may still train, and are not replaced.
void OnNodeCutOff(Job* job, const std::string& node, bool cut_off);

// Handles a process that has certainly ended, because its lease is over. Its node was silent for
// longer than the process could hold its lease, or an operator has forgotten the node. The end is
// no failure of the job.
RanksToEnd OnLeaseOver(Job* job, uint32_t rank, absl::Time now);

// Ends the processes although nothing failed. The job starts again later, which does not count as a
// restart.
RanksToEnd OnInterrupted(Job* job, const std::string& reason, absl::Time now);

// Asks the job to save a checkpoint at its next step boundary, to end there, and to continue on
// other nodes. True if its processes must be told now; false if they end anyway. A job that has not
// begun to train is interrupted (OnInterrupted).
bool OnPreempted(Job* job, const std::string& reason, absl::Time now, RanksToEnd* ended);

// Handles a client's stop. Idempotent. A command must reach the workers if the state is STOPPING
// afterwards and no rank is returned.
RanksToEnd OnStop(Job* job, const EndTimeouts& timeouts, absl::Time now);

// Returns whether the job's time_limit is used up and the job is not ending yet.
bool TimeIsUp(const Job& job, absl::Time now);
// Does the same as OnStop, but the job ends FAILED.
RanksToEnd OnTimeUp(Job* job, const EndTimeouts& timeouts, absl::Time now);

// Records that a stop that waited for its step has reached the workers, which get time to save.
void OnStopTookEffect(Job* job, const EndTimeouts& timeouts, absl::Time now);

// Handles a process of a newer generation than the job's. The job's generation ends if it lives,
// without counting as a restart. The next generation gets a higher number than the found one.
RanksToEnd OnNewerGeneration(Job* job, uint64_t generation, absl::Time now);

// Lets a halted job wait for slots again.
void Resume(Job* job);

// Delays the end of a job that is being stopped, because its ranks make progress.
void OnStopProgress(Job* job, const EndTimeouts& timeouts, absl::Time now);

// Records that the workers have halted (`paused`) or continue, as a command asked.
void OnPaused(Job* job, bool paused);

// Handles a tick: ends processes that should have ended by themselves.
RanksToEnd OnTick(Job* job, absl::Time now);

// Starts all waits again after a restart of the coordinator.
void OnLoaded(Job* job, const EndTimeouts& timeouts, absl::Time now);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_LIFE_H_
