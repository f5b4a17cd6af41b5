#include "coordinator/service/cluster_service.h"

#include "coordinator/service/request.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

v1::Node::State NodeState(const cluster::Cluster& cluster, const membership::Agent& agent) {
  if (!agent.attached()) return v1::Node::DETACHED;
  return cluster.IsDraining(agent.node) ? v1::Node::DRAINING : v1::Node::ATTACHED;
}

v1::Node ToWire(const cluster::Cluster& cluster, const membership::Agent& agent,
                const jobs::Slots& slots) {
  v1::Node node;
  node.set_name(agent.node);
  node.set_state(NodeState(cluster, agent));
  node.set_host(agent.host);
  node.set_slots_total(agent.slots);
  node.set_slots_free(slots.free(agent.node));
  node.set_version(agent.version);
  if (agent.last_seen != absl::InfinitePast()) Set(node.mutable_last_seen(), agent.last_seen);
  for (const auto& [job_id, ranks] : cluster.RanksOn(agent.node)) {
    auto* job = node.add_jobs();
    job->set_job_id(job_id);
    for (uint32_t rank : ranks) job->add_ranks(rank);
  }
  return node;
}

}  // namespace

grpc::ServerUnaryReactor* ClusterService::ForgetNode(grpc::CallbackServerContext* context,
                                                     const v1::ForgetNodeRequest* request,
                                                     v1::ForgetNodeResponse*) {
  auto* reactor = context->DefaultReactor();
  const cluster::ForgetRequest asked{.node = request->node(),
                                     .request_id = request->request_id(),
                                     .fingerprint = FingerprintOf("forget_node", *request),
                                     .requested_by = Shortened(request->requested_by())};
  const auto result = std::make_shared<absl::Status>();
  engine_->Post(
      [=](cluster::Cluster& cluster, absl::Time now) { *result = cluster.ForgetNode(asked, now); },
      [=](const absl::Status& committed) {
        reactor->Finish(service::ToWire(committed.ok() ? *result : committed));
      });
  return reactor;
}

grpc::ServerUnaryReactor* ClusterService::ListNodes(grpc::CallbackServerContext* context,
                                                    const v1::ListNodesRequest*,
                                                    v1::ListNodesResponse* response) {
  auto* reactor = context->DefaultReactor();
  engine_->Post(nullptr, [=, this](const absl::Status& committed) {
    if (!committed.ok()) return reactor->Finish(service::ToWire(committed));
    const cluster::Cluster& cluster = engine_->cluster();
    const jobs::Slots slots = cluster.OfferedSlots();
    for (const auto& [name, agent] : cluster.membership().agents()) {
      *response->add_nodes() = ToWire(cluster, agent, slots);
    }
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

}  // namespace muster::service
