// The life of a job: (job, event, now) -> (changed job, which processes to end). Pure.
//
//   QUEUED -> STARTING -> RUNNING -> SUCCEEDED    all ranks have finished, all processes have ended
//     STARTING, RUNNING -> RECOVERING             a rank failed or was lost: its generation ends
//       RECOVERING -> STARTING | FAILED           all its processes have ended: the next generation
//                                                 starts, or the job fails
//       RECOVERING -> PAUSED, halted              the job has checkpoints and none can be read: it
//                                                 has no processes and no slots until Resume
//     RUNNING <-> PAUSED                          a client asked for it
//   any with processes -> STOPPING -> FAILED      its time_limit is used up
//   any of these -> STOPPING -> CANCELLED         a client asked for a stop (a job that has no
//                                                 processes is CANCELLED at once)
//   FAILED, CANCELLED -> QUEUED | RECOVERING      a client asked for the next attempt
//
// A generation is one set of processes. All of them end together, the next generation starts when
// none of them is left, and generation numbers only grow. Only the next attempt leaves a terminal
// state: all other events are ignored.
//
// The cost of the next start depends on how the generation ended (EndOf in conclusion.h). After an
// interruption (the agent was stopped, the node drained, the lease over) it costs nothing. After a
// fault of a node it costs no restart, but a wait. After a failure of the job itself it costs one
// of plan.max_restarts, and from the second one on also a wait. The job makes progress when it
// writes its first checkpoint after the restart, or, while it has no checkpoint, when it passes the
// step at which it failed: then all its restarts are available again.
// docs/internals/protocol-coordinator.md says how long the waits are.
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
  // How long a stop command may wait to take effect while nothing makes progress, and how long
  // processes may take that exit by themselves (EndsByItself in conclusion.h).
  absl::Duration stop = absl::Seconds(30);
  // Between SIGTERM and SIGKILL.
  absl::Duration kill = absl::Seconds(2);
};

// The ranks whose processes must be told to end: they still run. Not life::Ended, the last phase.
using Ended = std::vector<uint32_t>;

// Starts a new generation; `ranks` have the node, the slot and the incarnation of each process. No
// effect unless the job is waiting(). A start after a failure of the job itself counts as a
// restart.
void StartGeneration(Job* job, std::vector<Rank> ranks, absl::Time now);

// The rank says what keeps it from starting; empty: nothing. True if that is new.
bool OnTrouble(Job* job, uint32_t rank, const std::string& trouble);

// The rank's communicators are connected and its model is loaded. `step`: optimizer steps done at
// the start.
void OnSessionStarted(Job* job, uint32_t rank, uint64_t step);

// The newest step is that of job->step.
void OnStep(Job* job);

// job->save_failure was set, changed or cleared.
void OnSave(Job* job);

// Which ranks have joined: they have no input left in this epoch (by rank: since which step; the
// others have input).
void OnRanksJoined(Job* job, const std::map<uint32_t, uint64_t>& since);

// `preempted`: the rank ended before its work was done, because the job should continue on other
// nodes.
void OnFinished(Job* job, uint32_t rank, bool preempted, const EndTimeouts& timeouts,
                absl::Time now);

// A checkpoint of the newest generation counts.
void OnCheckpoint(Job* job, uint64_t step);

// The process has attached.
void OnAttached(Job* job, uint32_t rank);

// A worker reports itself that it failed.
struct ReportedFailure {
  uint64_t step = 0;
  std::string reason;
  bool consequence = false;
  bool permanent = false;
  // FailureNote's.
  std::string code;
  // None of the job's checkpoints can be read: it halts.
  bool checkpoints_unreadable = false;
  // A newer generation that the job's folder names: the next one is above it. 0: there is none.
  uint64_t newer_generation = 0;
  // The node is at fault: a missing mount, no permission.
  bool node_fault = false;
};
// A failed last save ends no process: all ranks report it and exit by themselves (EndsByItself).
Ended OnFailureReport(Job* job, uint32_t rank, const ReportedFailure& failure,
                      const EndTimeouts& timeouts, absl::Time now);

// Begins the next attempt of a job that FAILED or was CANCELLED: its generations, commands and
// checkpoints continue, and all its restarts are available again. Whether it is allowed is decided
// before (NextAttempt in cluster/handlers). Has no effect on a job in another state.
void OnNextAttempt(Job* job, absl::Time now);

// A process ended.
Ended OnExit(Job* job, uint32_t rank, const Exit& exit, const EndTimeouts& timeouts,
             absl::Time now);

// Why a process counts as lost: nothing is heard of it any more, or it hangs.
struct Loss {
  std::string reason;
  // As in FailureNote.
  std::vector<std::string> collectives = {};
  bool permanent = false;
};
// The process may still exist.
Ended OnLost(Job* job, uint32_t rank, const Loss& loss, absl::Time now);

// The process does not count any more, by a fault of its node: it ended with its agent, or it does
// not end although it was killed.
Ended OnGone(Job* job, uint32_t rank, const std::string& reason, absl::Time now);

// For a job with `when_cut_off: continue`: a node with ranks of it is cut off, or not any more.
void OnNodeCutOff(Job* job, const std::string& node, bool cut_off);

// The process is certainly gone: its node was silent for longer than the process could hold its
// lease, or an operator says so. That is no failure of the job. After OnNodeCutOff, in contrast,
// the processes may still train.
Ended OnCutOff(Job* job, uint32_t rank, absl::Time now);

// The processes must end although nothing failed; the job starts again later, which does not count
// as a restart.
Ended OnInterrupted(Job* job, const std::string& reason, absl::Time now);

// The job should save a checkpoint at its next step boundary, end there, and continue on other
// nodes. True if its processes must be told so now; false if they end anyway. A job that has not
// begun to train is interrupted (OnInterrupted).
bool OnPreempted(Job* job, const std::string& reason, absl::Time now, Ended* ended);

// A client asks for a stop. Idempotent. If the state is STOPPING afterwards and no rank is
// returned, a command must reach the workers.
Ended OnStop(Job* job, const EndTimeouts& timeouts, absl::Time now);

// The job's time_limit is used up, and it is not ending yet.
bool TimeIsUp(const Job& job, absl::Time now);
// Like OnStop, but it ends FAILED.
Ended OnTimeUp(Job* job, const EndTimeouts& timeouts, absl::Time now);

// A stop that waited for its step has reached the workers. They get time to save.
void OnStopTookEffect(Job* job, const EndTimeouts& timeouts, absl::Time now);

// A process of a newer generation than the job's was found: the job's generation, if it lives,
// ends, which does not count as a restart, and the next one is above the found one.
Ended OnNewerGeneration(Job* job, uint64_t generation, absl::Time now);

// A halted job waits for slots again.
void Resume(Job* job);

// The ranks of a job that is being stopped make progress: they are not ended yet.
void OnStopProgress(Job* job, const EndTimeouts& timeouts, absl::Time now);

// The workers have halted (`paused`) or continue, as a command asked.
void OnPaused(Job* job, bool paused);

// Time has passed: ends processes that should have ended by themselves.
Ended OnTick(Job* job, absl::Time now);

// After a restart of the coordinator: all waits start again.
void OnLoaded(Job* job, const EndTimeouts& timeouts, absl::Time now);

}  // namespace muster::jobs

#endif  // MUSTER_COORDINATOR_JOBS_LIFE_H_
