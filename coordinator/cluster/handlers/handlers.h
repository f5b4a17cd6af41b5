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
#include "coordinator/cluster/handlers/turn.h"
#include "coordinator/jobs/job.h"

namespace muster::cluster {

// ---- Calls of clients about jobs (clients.cc).
// Returns the reason why a command is refused for this job; OK if it is accepted.
using CommandCheck = std::function<absl::Status(const jobs::Job& job)>;

absl::StatusOr<std::string> Submit(Turn& turn, const Submission& submission);
absl::StatusOr<uint64_t> Command(Turn& turn, const CommandRequest& request,
                                 const CommandCheck& check);
absl::StatusOr<uint64_t> NextAttempt(Turn& turn, const CommandRequest& request);
absl::StatusOr<uint64_t> Cancel(Turn& turn, const CommandRequest& request);
absl::StatusOr<std::string> Delete(Turn& turn, const DeleteRequest& request);

// ---- Orders of operators about nodes (node_orders.cc).
absl::Status Handle(Turn& turn, const DrainNode& order);
absl::Status Handle(Turn& turn, const CordonNode& order);
absl::Status Handle(Turn& turn, const UncordonNode& order);
absl::Status Handle(Turn& turn, const ForgetNode& order);

// ---- What agents say, and the ends of all streams (agents.cc).
absl::Status AttachAgent(Turn& turn, PeerStreamId session, const AgentHello& hello);
bool AgentHeard(Turn& turn, PeerStreamId session);
// Returns whether this agent may report on the process (Jobs::MayBeOn). Logs the first refusal.
bool SpeaksFor(Turn& turn, PeerStreamId session, const WorkerId& worker);
void Handle(Turn& turn, PeerStreamId session, const RunningWorker& worker);
void Handle(Turn& turn, PeerStreamId session, const WorkerExit& exit);
void Handle(Turn& turn, PeerStreamId session, const LogLines& log);
void Handle(Turn& turn, PeerStreamId session, const AgentStops& stops);
void Handle(Turn& turn, PeerStreamId session, const SlotQuarantine& quarantine);
void Detached(Turn& turn, PeerStreamId session);

// ---- Workers that attach, and their heartbeats (workers.cc); their reports (reports.cc).
absl::Status AttachWorker(Turn& turn, PeerStreamId session, const WorkerHello& hello);
bool WorkerBeat(Turn& turn, PeerStreamId session, const Heartbeat& heartbeat);
absl::Status WorkerReported(Turn& turn, PeerStreamId session, const Report& report);
void Handle(Turn& turn, PeerStreamId session, const SpooledReports& spooled);

// ---- What musterd itself says (daemon.cc).
// Handles a tick. Gives up processes that count as lost, ends processes that take too long to end,
// and stops jobs at their time limit. Forgets old requests, and starts the jobs that fit.
void Handle(Turn& turn, const TimePassed& passed);
void Handle(Turn& turn, const Judge& judge);
void Handle(Turn& turn, const WasAway& away);
void Handle(Turn& turn, const StoreWasAway& away);
void Handle(Turn& turn, const LeaveNode& leave);
void Handle(Turn& turn, const InterruptNode& interrupt);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_HANDLERS_H_
