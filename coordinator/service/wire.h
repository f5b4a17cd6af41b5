// Conversions between messages of muster.v1 and the cluster's plain values, in both directions. The
// cluster does not parse such messages; it only keeps some of them as serialized strings.
#ifndef MUSTER_COORDINATOR_SERVICE_WIRE_H_
#define MUSTER_COORDINATOR_SERVICE_WIRE_H_

#include <grpcpp/support/status.h>

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/trainability/trainability.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/event.h"
#include "coordinator/jobs/job.h"
#include "coordinator/membership/membership.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/agent_service.pb.h"
#include "proto/muster/v1/cluster_service.pb.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/job_service.pb.h"
#include "proto/muster/v1/operation.pb.h"
#include "proto/muster/v1/worker_service.pb.h"

namespace muster::service {

// The next step for each reason of this coordinator's errors (docs/reference/errors.md): one
// sentence for people, which ErrorInfo carries as `next`.
const std::map<absl::string_view, absl::string_view>& NextSteps();
// Returns the next step of a reason; of an unknown reason, such as a worker's: to read the message.
std::string NextStep(const std::string& reason);

// Returns an error with ErrorInfo: the reason, its subjects as metadata ("job", "field", "limit";
// see About), and the next step (`next`). Without a reason, the reason is the name of the code.
grpc::Status ToWire(const absl::Status& status);
// Returns the error of a call about this job.
grpc::Status ToWire(const absl::Status& status, const std::string& job_id);

// ---- From the wire.
cluster::WorkerId FromWire(const v1::WorkerIdentity& worker);
cluster::RunningWorker FromWire(const v1::RunningWorker& worker);
cluster::WorkerExit FromWire(const v1::WorkerExit& exit);
cluster::SlotQuarantine FromWire(const v1::SlotQuarantine& quarantine);
cluster::AgentHello FromWire(const v1::AgentHello& hello);
cluster::WorkerHello FromWire(const v1::WorkerHello& hello);
cluster::Heartbeat FromWire(const v1::WorkerHeartbeat& heartbeat);
cluster::Report FromWire(const v1::WorkerReport& report);

// ---- To the wire.
// Returns the rank's state. `worker`: the facts about its process; null if there are none.
v1::RankStatus::State StateOf(const jobs::Rank& rank, const membership::Worker* worker);
// Returns whether the rank takes part in training: it has begun and is not done.
bool Trains(const jobs::Rank& rank);
// Returns the node's state. `attached`: whether its agent is attached.
v1::Node::State StateOf(const cluster::NodeView& view, bool attached);
// Sets the time in microseconds, as it is stored.
void Set(google::protobuf::Timestamp* out, absl::Time value);
v1::AgentDirective ToWire(const cluster::AgentOrder& order);
v1::WorkerDirective ToWire(const cluster::WorkerOrder& order);
// Return a step with the rates computed from its measurements, a validation pass, and a test.
// DATA_LOSS: the row is damaged; the message names the job and the step.
absl::StatusOr<v1::StepMetrics> StepToWire(const store::MetricsRow& row);
absl::StatusOr<v1::StepMetrics> ValidationToWire(const store::MetricsRow& row);
absl::StatusOr<v1::StepMetrics> TestToWire(const store::MetricsRow& row);
v1::LogLine ToWire(const store::LogRow& line);
v1::Checkpoint ToWire(const jobs::Checkpoint& checkpoint);
// Returns a command of the job as clients see it.
v1::Operation ToWire(const jobs::Job& job, const commands::Command& command,
                     const cluster::Cluster& cluster);
// Returns what is trained; absent until a worker has made the model. `most`: the limit of the
// rules, of the pending changes, and of the history, which keeps its newest entries.
std::optional<v1::Trainability> TrainabilityOf(const jobs::Job& job, size_t most);
// Returns the model's parameters, and which of them the rules in force train; empty until a worker
// has made the model.
std::optional<muster::Trainability> ParametersOf(const jobs::Job& job);
// Returns the name of an operation: "job/3".
std::string OperationName(const std::string& job_id, uint64_t number);
struct OperationId {
  std::string job_id;
  uint64_t number = 0;
};
// Parses the name of an operation. INVALID_ARGUMENT OPERATION_NAME_INVALID.
absl::StatusOr<OperationId> ParseOperationName(const std::string& name);
// Sets the job's newest measurements, and its throughput over the last steps. `newest_steps`: the
// steps of cluster::Overview::NewestSteps.
void SetMetrics(v1::Job* out, const jobs::JobProgress& progress,
                const std::deque<std::string>& newest_steps);
// Returns the current state of a job, with the state of its ranks.
v1::Job ToWire(const jobs::Job& job, const cluster::Cluster& cluster);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_WIRE_H_
