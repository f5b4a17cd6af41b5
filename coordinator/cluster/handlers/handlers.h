// The cluster's decisions on each event. coordinator/cluster/cluster.h describes each function and
// its errors; event.h describes each event.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_HANDLERS_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_HANDLERS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/event.h"
#include "coordinator/cluster/handlers/handler_context.h"
#include "coordinator/jobs/job.h"

namespace muster::cluster {

// ---- Calls of clients about jobs (clients.cc).
// Returns the reason why a command is refused for this job; OK if it is accepted.
using CommandCheck = std::function<absl::Status(const jobs::Job& job)>;

absl::StatusOr<std::string> Submit(HandlerContext& context, const Submission& submission);
absl::StatusOr<uint64_t> Command(HandlerContext& context, const CommandRequest& request,
                                 const CommandCheck& check);
absl::StatusOr<uint64_t> NextAttempt(HandlerContext& context, const CommandRequest& request);
absl::StatusOr<uint64_t> Cancel(HandlerContext& context, const CommandRequest& request);
absl::StatusOr<std::string> Delete(HandlerContext& context, const DeleteRequest& request);

// ---- Orders of operators about nodes (node_orders.cc).
absl::Status Handle(HandlerContext& context, const DrainNode& order);
absl::Status Handle(HandlerContext& context, const CordonNode& order);
absl::Status Handle(HandlerContext& context, const UncordonNode& order);
absl::Status Handle(HandlerContext& context, const ForgetNode& order);

// ---- What agents say, and the ends of all streams (agents.cc).
absl::Status AttachAgent(HandlerContext& context, PeerStreamId stream, const AgentHello& hello);
bool AgentHeard(HandlerContext& context, PeerStreamId stream);
// Returns whether this agent may report on the process (Jobs::MayBeOn). Logs the first refusal.
bool SpeaksFor(HandlerContext& context, PeerStreamId stream, const WorkerId& worker);
void Handle(HandlerContext& context, PeerStreamId stream, const RunningWorker& worker);
void Handle(HandlerContext& context, PeerStreamId stream, const WorkerExit& exit);
void Handle(HandlerContext& context, PeerStreamId stream, const LogLines& log);
void Handle(HandlerContext& context, PeerStreamId stream, const AgentStops& stops);
void Handle(HandlerContext& context, PeerStreamId stream, const SlotQuarantine& quarantine);
void Detached(HandlerContext& context, PeerStreamId stream);

// ---- Workers that attach, and their heartbeats (workers.cc); their reports (reports.cc).
absl::Status AttachWorker(HandlerContext& context, PeerStreamId stream, const WorkerHello& hello);
bool WorkerBeat(HandlerContext& context, PeerStreamId stream, const Heartbeat& heartbeat);
absl::Status WorkerReported(HandlerContext& context, PeerStreamId stream, const Report& report);
void Handle(HandlerContext& context, PeerStreamId stream, const SpooledReports& spooled);

// ---- What musterd itself says (daemon.cc).
// Handles a tick. Gives up processes that count as lost, ends processes that take too long to end,
// and stops jobs at their time limit. Forgets old requests, and starts the jobs that fit.
void Handle(HandlerContext& context, const TimePassed& passed);
void Handle(HandlerContext& context, const JudgeLiveness& judge);
void Handle(HandlerContext& context, const CoordinatorPaused& away);
void Handle(HandlerContext& context, const StoreUnavailable& away);
void Handle(HandlerContext& context, const LeaveNode& leave);
void Handle(HandlerContext& context, const InterruptNode& interrupt);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_HANDLERS_H_
