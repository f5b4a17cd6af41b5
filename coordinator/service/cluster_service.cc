#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "common/rpc/proto_time.h"
#include "common/slots/slots.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/admission.h"
#include "coordinator/service/request.h"
#include "coordinator/service/services.h"
#include "coordinator/service/wire.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/cluster_service.grpc.pb.h"

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

v1::Node NodeToWire(const cluster::Cluster& cluster, const membership::Agent& agent,
                    const Offered& offered) {
  v1::Node node;
  node.set_name(agent.node);
  const cluster::NodeView view = cluster.overview().View(agent.node);
  node.set_state(StateOf(view, agent.attached()));
  // A reason says why jobs are not placed on a node, or why the node is doubted. It does not apply
  // to a detached node.
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

// Fills in the current state of the node. Without a known agent, only its name and its state are
// set.
void Describe(const cluster::Cluster& cluster, const std::string& name, v1::Node* node) {
  if (const membership::Agent* agent = cluster.membership().agents().Find(name); agent != nullptr) {
    *node = NodeToWire(cluster, *agent, OfferedBy(cluster));
    return;
  }
  const cluster::NodeView view = cluster.overview().View(name);
  node->set_name(name);
  node->set_state(StateOf(view, false));
  if (node->state() != v1::Node::DETACHED) node->set_state_reason(view.reason);
}

constexpr size_t kChunkBytes = 1 << 20;

absl::Status Failed(const absl::Status& why) {
  return Refuse(why.code(), "BACKUP_FAILED", std::string(why.message()));
}

// A copy of the store, which a thread makes while the store is in use. The stream sends the copy in
// pieces and removes it. The store and `running`, whether a backup runs, outlive the server.
class BackupStream : public grpc::ServerWriteReactor<v1::BackupChunk> {
 public:
  BackupStream(store::Store* store, std::atomic<bool>* running)
      : store_(store), running_(running) {}

  void Begin() {
    if (running_->exchange(true)) {
      holds_ = false;
      Finish(ToWire(Refuse(absl::StatusCode::kResourceExhausted, "BACKUP_RUNNING",
                           "another backup is being made; try again when it is done", LimitOf(1))));
      return;
    }
    // The copy may take long, and gRPC's threads must not wait for a disk. gRPC keeps this object
    // until Finish.
    std::thread([this] { Copy(); }).detach();
  }

  void OnWriteDone(bool ok) override { ok ? SendNext() : Finish(ToWire(ClientGone())); }
  void OnDone() override {
    if (holds_) running_->store(false);
    delete this;
  }

 private:
  void Copy() {
    const absl::StatusOr<std::string> path = store_->Backup();
    if (!path.ok()) return Finish(ToWire(Failed(path.status())));
    file_.open(*path, std::ios::binary);
    // The open file does not need its name any more. Without a name it is removed even if the
    // process ends now.
    unlink(path->c_str());
    SendNext();
  }

  void SendNext() {
    std::string& data = *chunk_.mutable_data();
    data.resize(kChunkBytes);
    file_.read(data.data(), static_cast<std::streamsize>(data.size()));
    data.resize(static_cast<size_t>(file_.gcount()));
    if (file_.bad() || (data.empty() && !file_.eof())) {
      return Finish(ToWire(Failed(absl::UnavailableError("the copy of the store cannot be read"))));
    }
    if (data.empty()) return Finish(grpc::Status::OK);
    StartWrite(&chunk_);
  }

  store::Store* const store_;
  std::atomic<bool>* const running_;
  bool holds_ = true;
  std::ifstream file_;
  v1::BackupChunk chunk_;
};

class ClusterService final : public Admitting<v1::ClusterService::CallbackService> {
 public:
  explicit ClusterService(const ServiceParts& parts)
      : Admitting(parts.authorize), engine_(parts.engine), store_(parts.store) {
    Admits("ListNodes", &ClusterService::ListNodes);
    Admits("DrainNode", &ClusterService::DrainNode);
    Admits("CordonNode", &ClusterService::CordonNode);
    Admits("UncordonNode", &ClusterService::UncordonNode);
    Admits("ForgetNode", &ClusterService::ForgetNode);
    Admits("Backup", &ClusterService::Backup);
  }

 private:
  Reactor* ForgetNode(Context* context, const v1::ForgetNodeRequest* request,
                      v1::ForgetNodeResponse*) override {
    return ChangeNode<cluster::ForgetNode>(context, "forget_node", *request, nullptr);
  }

  Reactor* DrainNode(Context* context, const v1::DrainNodeRequest* request,
                     v1::Node* response) override {
    return ChangeNode<cluster::DrainNode>(context, "drain_node", *request, response);
  }

  Reactor* CordonNode(Context* context, const v1::CordonNodeRequest* request,
                      v1::Node* response) override {
    return ChangeNode<cluster::CordonNode>(context, "cordon_node", *request, response);
  }

  Reactor* UncordonNode(Context* context, const v1::UncordonNodeRequest* request,
                        v1::Node* response) override {
    return ChangeNode<cluster::UncordonNode>(context, "uncordon_node", *request, response);
  }

  Reactor* ListNodes(Context* context, const v1::ListNodesRequest*,
                     v1::ListNodesResponse* response) override {
    auto* reactor = context->DefaultReactor();
    // Aside answers even while the store is in trouble, which the answer says.
    engine_->Aside([=, this](const cluster::Cluster& cluster, absl::Time) {
      const Offered offered = OfferedBy(cluster);
      for (const auto& [name, agent] : cluster.membership().agents().all()) {
        *response->add_nodes() = NodeToWire(cluster, agent, offered);
      }
      if (const auto& trouble = engine_->trouble(); trouble.has_value()) {
        response->mutable_store_trouble()->set_message(trouble->message);
        Set(response->mutable_store_trouble()->mutable_since(), trouble->since);
      }
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  grpc::ServerWriteReactor<v1::BackupChunk>* Backup(Context* context,
                                                    const v1::BackupRequest*) override {
    spdlog::info("a backup of the store was asked for by {}", RequesterOf(context));
    auto* stream = new BackupStream(store_, &backup_running_);
    stream->Begin();
    return stream;
  }

  // `response`: gets the node's state after the change; null if the answer only confirms the
  // change.
  template <typename Order, typename Request>
  Reactor* ChangeNode(Context* context, const std::string& call, const Request& request,
                      v1::Node* response) {
    cluster::NodeRequest asked{.node = request.node(),
                               .request_id = request.request_id(),
                               .fingerprint = FingerprintOf(call, request),
                               .requested_by = LabelOf(context, request.requested_by())};
    if constexpr (requires { request.has_deadline(); }) {
      if (request.has_deadline()) asked.deadline = FromProto(request.deadline());
    }
    return ChangeAndAnswer(
        engine_, context, "",
        [=](cluster::Cluster& cluster, absl::Time now) {
          return With(cluster.Handle(Order{asked}, now), {{"node", asked.node}});
        },
        [=, this] {
          if (response != nullptr) Describe(engine_->cluster(), asked.node, response);
          return absl::OkStatus();
        });
  }

  Engine* const engine_;
  store::Store* const store_;
  // Only one backup runs at a time: RESOURCE_EXHAUSTED BACKUP_RUNNING.
  std::atomic<bool> backup_running_ = false;
};

}  // namespace

std::unique_ptr<grpc::Service> NewClusterService(const ServiceParts& parts) {
  return std::make_unique<ClusterService>(parts);
}

}  // namespace muster::service
