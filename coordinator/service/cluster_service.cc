#include "coordinator/service/cluster_service.h"

#include <memory>
#include <optional>
#include <string>

#include "common/rpc/proto_time.h"
#include "common/slots/slots.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/request.h"
#include "coordinator/service/states.h"
#include "coordinator/service/wire.h"

namespace muster::service {
namespace {

struct Offered {
  jobs::Slots slots;
  jobs::Slots gpus;
};

Offered OfferedBy(const cluster::Cluster& cluster) {
  return {cluster.overview().OfferedSlots(jobs::Device::kCpu),
          cluster.overview().OfferedSlots(jobs::Device::kCuda)};
}

v1::Node ToWire(const cluster::Cluster& cluster, const membership::Agent& agent,
                const Offered& offered) {
  v1::Node node;
  node.set_name(agent.node);
  const cluster::NodeView view = cluster.overview().View(agent.node);
  node.set_state(StateOf(view, agent.attached()));
  // A reason says why jobs are not placed on a node, or why it is doubted: it does not apply to a
  // detached node.
  if (node.state() != v1::Node::DETACHED) node.set_state_reason(view.reason);
  if (view.until != absl::InfinitePast()) Set(node.mutable_left_out_until(), view.until);
  node.set_host(agent.host);
  node.set_slots_total(agent.slots);
  node.set_slots_free(offered.slots.free(agent.node));
  for (uint32_t i = 0; i < agent.gpus.size(); ++i) {
    v1::NodeGpu* gpu = node.add_gpus();
    gpu->set_index(agent.gpus[i].index);
    gpu->set_uuid(agent.gpus[i].uuid);
    gpu->set_name(agent.gpus[i].name);
    gpu->set_memory_bytes(agent.gpus[i].memory_bytes);
    gpu->set_free(offered.gpus.IsFree({agent.node, kFirstGpuSlot + agent.gpus[i].index}));
  }
  node.set_version(agent.version);
  node.set_agent_id(cluster.overview().AgentId(agent.node));
  node.set_slots_quarantined(
      static_cast<uint32_t>(cluster.overview().QuarantinedSlots(agent.node)));
  if (agent.last_seen != absl::InfinitePast()) Set(node.mutable_last_seen(), agent.last_seen);
  for (const auto& [job_id, ranks] : cluster.overview().RanksOn(agent.node)) {
    auto* job = node.add_jobs();
    job->set_job_id(job_id);
    for (uint32_t rank : ranks) job->add_ranks(rank);
    job->set_without_checkpoints(!jobs::WritesCheckpoints(*cluster.Find(job_id)));
  }
  return node;
}

// The node as it is now. If its agent is not known, only its name and its state are set.
void Describe(const cluster::Cluster& cluster, const std::string& name, v1::Node* node) {
  if (const membership::Agent* agent = cluster.membership().agents().Find(name); agent != nullptr) {
    *node = ToWire(cluster, *agent, OfferedBy(cluster));
    return;
  }
  const cluster::NodeView view = cluster.overview().View(name);
  node->set_name(name);
  node->set_state(StateOf(view, false));
  if (node->state() != v1::Node::DETACHED) node->set_state_reason(view.reason);
}

// Only a drain has a deadline.
template <typename Request>
std::optional<absl::Duration> DeadlineOf(const Request&) {
  return std::nullopt;
}
std::optional<absl::Duration> DeadlineOf(const v1::DrainNodeRequest& request) {
  if (!request.has_deadline()) return std::nullopt;
  return FromProto(request.deadline());
}

template <typename Order, typename Request>
grpc::ServerUnaryReactor* ChangeNode(Engine* engine, grpc::CallbackServerContext* context,
                                     const std::string& call, const Request* request,
                                     v1::Node* response) {
  auto* reactor = context->DefaultReactor();
  const cluster::NodeRequest asked{.node = request->node(),
                                   .request_id = request->request_id(),
                                   .fingerprint = FingerprintOf(call, *request),
                                   .requested_by = LabelOf(context, request->requested_by()),
                                   .deadline = DeadlineOf(*request)};
  const auto result = std::make_shared<absl::Status>();
  const About about{{"node", asked.node}};
  engine->Request([=](cluster::Cluster& cluster,
                      absl::Time now) { *result = cluster.Handle(Order{asked}, now); },
                  [=](const absl::Status& committed) {
                    if (!committed.ok()) return reactor->Finish(service::ToWire(committed));
                    if (!result->ok())
                      return reactor->Finish(service::ToWire(With(*result, about)));
                    Describe(engine->cluster(), asked.node, response);
                    reactor->Finish(grpc::Status::OK);
                  });
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* ClusterService::ForgetNode(grpc::CallbackServerContext* context,
                                                     const v1::ForgetNodeRequest* request,
                                                     v1::ForgetNodeResponse*) {
  auto* reactor = context->DefaultReactor();
  const cluster::NodeRequest asked{.node = request->node(),
                                   .request_id = request->request_id(),
                                   .fingerprint = FingerprintOf("forget_node", *request),
                                   .requested_by = LabelOf(context, request->requested_by())};
  const auto result = std::make_shared<absl::Status>();
  engine_->Request(
      [=](cluster::Cluster& cluster, absl::Time now) {
        *result = cluster.Handle(cluster::ForgetNode{asked}, now);
      },
      [=](const absl::Status& committed) {
        const absl::Status refused = With(*result, {{"node", asked.node}});
        reactor->Finish(service::ToWire(committed.ok() ? refused : committed));
      });
  return reactor;
}

grpc::ServerUnaryReactor* ClusterService::DrainNode(grpc::CallbackServerContext* context,
                                                    const v1::DrainNodeRequest* request,
                                                    v1::Node* response) {
  return ChangeNode<cluster::DrainNode>(engine_, context, "drain_node", request, response);
}

grpc::ServerUnaryReactor* ClusterService::CordonNode(grpc::CallbackServerContext* context,
                                                     const v1::CordonNodeRequest* request,
                                                     v1::Node* response) {
  return ChangeNode<cluster::CordonNode>(engine_, context, "cordon_node", request, response);
}

grpc::ServerUnaryReactor* ClusterService::UncordonNode(grpc::CallbackServerContext* context,
                                                       const v1::UncordonNodeRequest* request,
                                                       v1::Node* response) {
  return ChangeNode<cluster::UncordonNode>(engine_, context, "uncordon_node", request, response);
}

grpc::ServerUnaryReactor* ClusterService::ListNodes(grpc::CallbackServerContext* context,
                                                    const v1::ListNodesRequest*,
                                                    v1::ListNodesResponse* response) {
  auto* reactor = context->DefaultReactor();
  // This is answered even while the store is in trouble: the answer says so.
  engine_->Aside([=, this](const cluster::Cluster& cluster, absl::Time) {
    const Offered offered = OfferedBy(cluster);
    for (const auto& [name, agent] : cluster.membership().agents().all()) {
      *response->add_nodes() = ToWire(cluster, agent, offered);
    }
    if (const auto& trouble = engine_->trouble(); trouble.has_value()) {
      response->mutable_store_trouble()->set_message(trouble->message);
      Set(response->mutable_store_trouble()->mutable_since(), trouble->since);
    }
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

}  // namespace muster::service
