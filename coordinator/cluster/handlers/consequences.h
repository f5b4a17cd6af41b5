// What follows from an event, whichever handler decides on it: orders to agents and workers, and
// changes of jobs after which processes end, nodes are judged, watchers are told, and the jobs that
// fit now start.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_CONSEQUENCES_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_CONSEQUENCES_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/event.h"
#include "coordinator/cluster/handlers/turn.h"
#include "coordinator/cluster/parts/parts.h"
#include "coordinator/commands/command_log.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/membership.h"
#include "coordinator/membership/watchdog.h"

namespace muster::cluster {

// ---- Changes of jobs.
// A change that watchers and webhooks see. Handlers call this, not Jobs::Changed.
void Changed(Turn& turn, jobs::Job* job);
// The job made progress: its nodes are in order.
void NodesWork(Turn& turn, const jobs::Job& job);
// Carries out what follows from a change of the job's state: tells the processes of `ended` to end,
// forgets those that are gone, judges the nodes, ends the commands of a job that has ended, logs
// the state, and starts the jobs that fit now.
void ApplyJobChange(Turn& turn, jobs::Job* job, const jobs::Ended& ended);
// The same after a change of the job's lists.
void ApplyListsChange(Turn& turn, jobs::Job* job, const jobs::Ended& ended);
// Starts the jobs that fit, in the order of the line, and records why the others wait.
void Schedule(Turn& turn);
// The watchdog's settings for this job: its own, or the defaults.
membership::ProgressLimits ProgressLimitsOf(const Options& options, const jobs::Job& job);

// ---- Orders to agents and workers, and the ends of their streams.
// An order is lost if its receiver is not attached: what the receiver missed, it gets when it
// attaches.
void SendToRank(Turn& turn, const jobs::Job& job, uint32_t rank, WorkerOrder order);
void SendToNode(Turn& turn, const std::string& node, AgentOrder order);
// The process of this rank should end, with SIGTERM first.
StopWorker StopOf(const Turn& turn, const jobs::Job& job, uint32_t rank);
StartWorker StartOf(const jobs::Job& job, uint32_t rank);
// Adds a command to the job's log, and tells it to the workers. Returns its number.
uint64_t Append(Turn& turn, jobs::Job* job, commands::Command command);
// Whether a program of this protocol is served; `own`: that of this musterd. Errors:
// FAILED_PRECONDITION `too_old` (`update` says what to update) or PROGRAM_TOO_NEW.
absl::Status CheckProtocol(const std::string& who, uint32_t protocol, uint32_t own,
                           const std::string& too_old, const std::string& update);
// 0: there is no stream.
void Close(Turn& turn, PeerStreamId session, const absl::Status& why);

// ---- Nodes that jobs leave, and silent nodes: those that count as lost, and those whose return is
// awaited (`when_cut_off: continue`) (node_loss.cc).
// The jobs there save a checkpoint at their next step, end, and continue on other nodes.
void PreemptNode(Turn& turn, const std::string& node, const std::string& reason);
// The node was silent for too long. Its processes end by themselves, except those of jobs with
// `when_cut_off: continue`.
void NodeLost(Turn& turn, const membership::Agent& agent);
// It is back.
void NodeFound(Turn& turn, const std::string& node);
// Ends the streams of the node's processes, except those of jobs that continue.
void EndSessionsOf(Turn& turn, const std::string& node, const std::string& why,
                   const std::function<bool(const std::string& job)>& continues);

// ---- Signs that the database was restored from an older copy: processes know more than it
// (later_state.cc).
// The process knows of acknowledged reports or commands: its generation cannot continue. That is no
// failure of the job.
void FollowsALaterState(Turn& turn, jobs::Job* job, const std::string& what);
// The same, because this rank's reports up to `newest` were acknowledged and are missing here.
void MissesReports(Turn& turn, jobs::Job* job, uint32_t rank, uint64_t newest);
// There is a process of a later generation than the job's: the running generation ends, and the
// next one is above it. `what` says what happened to the process, for the log.
void NewerGenerationFound(Turn& turn, jobs::Job* job, uint64_t generation, const std::string& what);
// If processes of later generations than their job's run on this node, tells them to end; the
// job's next generation is above them.
void EndLaterProcesses(Turn& turn, const AgentHello& hello);

// ---- Reports about a job's checkpoint folder: checkpoints that are written, found or removed
// there, and the checkpoint from which a generation starts. Only rank 0 speaks for the folder
// (checkpoints.cc).
void RecordCheckpoint(Turn& turn, jobs::Job* job, const CheckpointWritten& written);
void TakeFound(Turn& turn, jobs::Job* job, const CheckpointsFound& report);
void TakeStart(Turn& turn, jobs::Job* job, const SessionStarted& started);
// Tells rank 0 which checkpoints to remove.
void TellToRemove(Turn& turn, const jobs::Job& job);

// ---- Whether there is room for one more: the limits of what clients add. Errors:
// RESOURCE_EXHAUSTED (room.cc).
// TOO_MANY_OPEN_JOBS.
absl::Status CheckOpenJobs(const Jobs& jobs, const Limits& limits);
// Also TOO_MANY_JOBS, JOBS_TOO_LARGE.
absl::Status CheckRoomForJob(const Jobs& jobs, const Limits& limits, const std::string& spec);
// For a command of the job: TOO_MANY_OPEN_COMMANDS, TOO_MANY_COMMANDS, COMMANDS_TOO_LARGE.
absl::Status CheckRoomFor(const Limits& limits, const jobs::Job& job,
                          const commands::Command& command);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_CONSEQUENCES_H_
