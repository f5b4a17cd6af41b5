// Orders to agents and workers, and the ends of their streams.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_ORDERS_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_ORDERS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/handlers/turn.h"
#include "coordinator/commands/command_log.h"
#include "coordinator/jobs/job.h"

namespace muster::cluster {

// An order is lost if its receiver is not attached: what the receiver missed, it gets when it
// attaches.
void SendToRank(Turn& turn, const jobs::Job& job, uint32_t rank, WorkerOrder order);
void SendToNode(Turn& turn, const std::string& node, AgentOrder order);
// The process of this rank should end, with SIGTERM first.
StopWorker StopOf(const Turn& turn, const jobs::Job& job, uint32_t rank);
StartWorker StartOf(const jobs::Job& job, uint32_t rank);
// Adds a command to the job's log, and tells it to the workers. Returns its number.
uint64_t Append(Turn& turn, jobs::Job* job, commands::Command command);
// 0: there is no stream.
void Close(Turn& turn, PeerStreamId session, const absl::Status& why);

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_ORDERS_H_
