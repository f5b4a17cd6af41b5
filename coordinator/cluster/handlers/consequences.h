// Functions that several handlers use: they send orders, and carry out what follows from a job
// change. A change of a job ends processes, judges nodes, tells watchers, and starts jobs that fit
// now.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_CONSEQUENCES_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_CONSEQUENCES_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/event.h"
#include "coordinator/cluster/handlers/handler_context.h"
#include "coordinator/cluster/state/cluster_state.h"
#include "coordinator/commands/command_log.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/membership.h"
#include "coordinator/membership/watchdog.h"

namespace muster::cluster {

// ---- Changes of jobs.
// Records a change that watchers and webhooks see. Handlers call this, not Jobs::Changed.
void Changed(HandlerContext& context, jobs::Job* job);
// Records that the job made progress, which shows that its nodes are in order.
void NodesWork(HandlerContext& context, const jobs::Job& job);
// Carries out the consequences of a change of the job's state. Tells the processes of `ended` to
// end and forgets the processes that are gone. Judges the nodes, ends the commands of an ended job,
// logs the state, and starts the jobs that fit now.
void ApplyJobChange(HandlerContext& context, jobs::Job* job, const jobs::RanksToEnd& ended);
// Does the same as ApplyJobChange after a change in the job's lists: ranks, checkpoints, failures,
// attempts, setting changes, commands, trainability.
void ApplyListsChange(HandlerContext& context, jobs::Job* job, const jobs::RanksToEnd& ended);
// Starts the jobs that fit, in the order of the line. Records why the other jobs wait.
void Schedule(HandlerContext& context);
// Returns the watchdog's settings for this job: the job's own, or the defaults.
membership::ProgressLimits ProgressLimitsOf(const Options& options, const jobs::Job& job);

// ---- Orders to agents and workers, and the ends of their streams.
// SendToRank and SendToNode send an order. Nothing is sent if the receiver is not attached; when
// the receiver attaches, it is told what it needs then.
void SendToRank(HandlerContext& context, const jobs::Job& job, uint32_t rank, WorkerOrder order);
void SendToNode(HandlerContext& context, const std::string& node, AgentOrder order);
// Returns the order to end this rank's process, with SIGTERM first.
StopWorker StopOf(const HandlerContext& context, const jobs::Job& job, uint32_t rank);
StartWorker StartOf(const jobs::Job& job, uint32_t rank);
// Adds a command to the job's log, and sends it to the workers. Returns its number.
uint64_t Append(HandlerContext& context, jobs::Job* job, commands::Command command);
// Checks that musterd serves a program of this protocol; `own` is musterd's protocol. Errors:
// FAILED_PRECONDITION `too_old` (`update` says what to update) or PROGRAM_TOO_NEW.
absl::Status CheckProtocol(const std::string& who, uint32_t protocol, uint32_t own,
                           const std::string& too_old, const std::string& update);
// Closes the stream with this status. Nothing happens if `stream` is 0.
void Close(HandlerContext& context, PeerStreamId stream, const absl::Status& why);

// ---- Nodes that jobs leave, and silent nodes: lost nodes, and nodes whose return is awaited
// (`when_cut_off: continue`) (node_loss.cc).
// Tells the jobs on the node to save a checkpoint at their next step boundary, to end, and to
// continue on other nodes.
void PreemptNode(HandlerContext& context, const std::string& node, const std::string& reason);
// Handles a node that was silent for too long. Its processes end by themselves, except processes of
// jobs with `when_cut_off: continue`.
void NodeLost(HandlerContext& context, const membership::Agent& agent);
// Handles the return of a silent node.
void NodeFound(HandlerContext& context, const std::string& node);
// Ends the streams of the node's processes, except processes of jobs that continue.
void EndSessionsOf(HandlerContext& context, const std::string& node, const std::string& why,
                   const std::function<bool(const std::string& job)>& continues);

// ---- Signs that the database was restored from an older copy: processes know more than the
// database (later_state.cc).
// Ends the generation of a process that knows acknowledged reports or commands which the database
// lacks. This is no failure of the job.
void EndAfterRestore(HandlerContext& context, jobs::Job* job, const std::string& what);
// Does the same because reports of this rank up to `newest` were acknowledged and are missing.
void EndForLostReports(HandlerContext& context, jobs::Job* job, uint32_t rank, uint64_t newest);
// Handles a process of a later generation than the job's. The running generation ends, and the next
// generation gets a higher number. `what` says what happened to the process, for the log.
void NewerGenerationFound(HandlerContext& context, jobs::Job* job, uint64_t generation,
                          const std::string& what);
// Tells processes on this node to end if their generation is later than their job's. The job's next
// generation gets a higher number.
void EndLaterProcesses(HandlerContext& context, const AgentHello& hello);

// ---- Reports about a job's checkpoint folder: checkpoints that are written, found or removed, and
// the checkpoint from which a generation starts. Only rank 0 reports on the folder
// (checkpoints.cc).
void RecordCheckpoint(HandlerContext& context, jobs::Job* job, const CheckpointWritten& written);
void TakeFound(HandlerContext& context, jobs::Job* job, const CheckpointsFound& report);
void TakeStart(HandlerContext& context, jobs::Job* job, const SessionStarted& started);
// Tells rank 0 which checkpoints to remove.
void TellToRemove(HandlerContext& context, const jobs::Job& job);

// ---- Limits of what clients add. Errors: RESOURCE_EXHAUSTED (room.cc).
// Errors: TOO_MANY_OPEN_JOBS.
absl::Status CheckOpenJobs(const Jobs& jobs, const Limits& limits);
// Errors: TOO_MANY_OPEN_JOBS, TOO_MANY_JOBS, JOBS_TOO_LARGE.
absl::Status CheckRoomForJob(const Jobs& jobs, const Limits& limits, const std::string& spec);
// Errors: TOO_MANY_OPEN_COMMANDS, TOO_MANY_COMMANDS, COMMANDS_TOO_LARGE.
absl::Status CheckRoomFor(const Limits& limits, const jobs::Job& job,
                          const commands::Command& command);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_CONSEQUENCES_H_
