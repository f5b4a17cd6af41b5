#include "coordinator/cluster/cluster.h"

#include <utility>
#include <variant>

#include "coordinator/cluster/handlers/agents.h"
#include "coordinator/cluster/handlers/daemon.h"
#include "coordinator/cluster/handlers/node_orders.h"
#include "coordinator/cluster/handlers/reports.h"
#include "coordinator/cluster/handlers/stored.h"
#include "coordinator/cluster/handlers/workers.h"

namespace muster::cluster {

Cluster::Cluster(const Options& options, const store::Image& image, absl::Time now)
    : parts_(options, image, now) {
  Turn turn = At(now);
  Load(turn, image);
}

absl::StatusOr<std::string> Cluster::Submit(const Submission& submission, absl::Time now) {
  Turn turn = At(now);
  return cluster::Submit(turn, submission);
}

absl::StatusOr<uint64_t> Cluster::Command(const CommandRequest& request, absl::Time now,
                                          const CommandCheck& check) {
  Turn turn = At(now);
  return cluster::Command(turn, request, check);
}

absl::StatusOr<uint64_t> Cluster::NextAttempt(const CommandRequest& request, absl::Time now) {
  Turn turn = At(now);
  return cluster::NextAttempt(turn, request);
}

absl::StatusOr<uint64_t> Cluster::Cancel(const CommandRequest& request, absl::Time now) {
  Turn turn = At(now);
  return cluster::Cancel(turn, request);
}

absl::StatusOr<std::string> Cluster::Delete(const DeleteRequest& request, absl::Time now) {
  Turn turn = At(now);
  return cluster::Delete(turn, request);
}

absl::Status Cluster::Handle(const NodeOrder& order, absl::Time now) {
  Turn turn = At(now);
  return std::visit([&](const auto& one) { return cluster::Handle(turn, one); }, order);
}

absl::Status Cluster::AttachAgent(PeerStreamId session, const AgentHello& hello, absl::Time now) {
  Turn turn = At(now);
  return cluster::AttachAgent(turn, session, hello);
}

bool Cluster::AgentHeard(PeerStreamId session, absl::Time now) {
  Turn turn = At(now);
  return cluster::AgentHeard(turn, session);
}

void Cluster::Handle(PeerStreamId session, const AgentWord& word, absl::Time now) {
  Turn turn = At(now);
  std::visit([&](const auto& one) { cluster::Handle(turn, session, one); }, word);
}

absl::Status Cluster::AttachWorker(PeerStreamId session, const WorkerHello& hello, absl::Time now) {
  Turn turn = At(now);
  return cluster::AttachWorker(turn, session, hello);
}

bool Cluster::WorkerBeat(PeerStreamId session, const Heartbeat& heartbeat, absl::Time now) {
  Turn turn = At(now);
  return cluster::WorkerBeat(turn, session, heartbeat);
}

absl::Status Cluster::WorkerReported(PeerStreamId session, const Report& report, absl::Time now) {
  Turn turn = At(now);
  return cluster::WorkerReported(turn, session, report);
}

void Cluster::Detached(PeerStreamId session, absl::Time now) {
  Turn turn = At(now);
  cluster::Detached(turn, session);
}

void Cluster::Settled(const std::vector<uint64_t>& numbers) {
  for (const uint64_t number : numbers) parts_.outbox.Settle(number);
}

void Cluster::Handle(const DaemonEvent& event, absl::Time now) {
  Turn turn = At(now);
  std::visit([&](const auto& one) { cluster::Handle(turn, one); }, event);
}

store::Batch Cluster::TakeBatch() {
  // Any time would do: the changes do not depend on it.
  Turn turn = At(parts_.clock.last_tick);
  TakeChanges(turn);
  if (parts_.options.planted_fault == PlantedFault::kLatePersist) {
    std::swap(outcome_.batch, late_batch_);
  }
  return std::exchange(outcome_.batch, {});
}

std::vector<Effect> Cluster::TakeEffects() { return std::exchange(outcome_.effects, {}); }

}  // namespace muster::cluster
