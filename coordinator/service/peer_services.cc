#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/access.h"
#include "common/rpc/caller.h"
#include "common/slots/slots.h"
#include "common/status/status.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/message_limits.h"
#include "coordinator/service/peer_stream.h"
#include "coordinator/service/permit.h"
#include "coordinator/service/services.h"
#include "coordinator/service/wire.h"
#include "proto/muster/v1/agent_service.grpc.pb.h"
#include "proto/muster/v1/worker_service.grpc.pb.h"

namespace muster::service {
namespace {

absl::Status Invalid(const std::string& message) {
  return Refuse(absl::StatusCode::kInvalidArgument, "HELLO_INVALID", message, {{"field", "hello"}});
}

// Checks the offer first, because the memory and the time for a node grow with its slots.
absl::Status CheckOffer(const v1::AgentHello& hello) {
  if (const uint64_t gpus = static_cast<uint64_t>(hello.gpus_size());
      hello.slots() > kMostSlots || gpus > kMostSlots) {
    return Refuse(absl::StatusCode::kInvalidArgument, "TOO_MANY_SLOTS",
                  absl::StrCat("node '", hello.node(), "' offers ", hello.slots(), " slots and ",
                               gpus, " GPUs; expected at most ", kMostSlots, " of each"),
                  {{"field", hello.slots() > kMostSlots ? "slots" : "gpus"},
                   {"limit", absl::StrCat(kMostSlots)},
                   {"node", hello.node()}});
  }
  for (const int count : {hello.running_size(), hello.exits_size(), hello.quarantined_size()}) {
    if (count <= kLimits.hello_processes) continue;
    return Invalid(absl::StrCat("node '", hello.node(), "' names ", count,
                                " processes in one list; expected at most ",
                                kLimits.hello_processes));
  }
  std::set<uint32_t> indices;
  for (const v1::Gpu& gpu : hello.gpus()) {
    if (gpu.index() < kFirstGpuSlot && indices.insert(gpu.index()).second) continue;
    return Invalid(absl::StrCat("node '", hello.node(), "': found a GPU of index ", gpu.index(),
                                "; expected each index once, below ", kFirstGpuSlot));
  }
  return absl::OkStatus();
}

// A peer's stream that begins with a Hello. `parts` outlives it.
template <typename In, typename Out>
class GreetedStream : public PeerStreamReactor<In, Out> {
 public:
  // `method`: the call that opened the stream.
  GreetedStream(const ServiceParts& parts, Caller caller, const char* method)
      : PeerStreamReactor<In, Out>(parts.engine, parts.peers, parts.peers->NextId(),
                                   PermitOf(caller, method, parts.authorize)),
        parts_(parts),
        caller_(std::move(caller)) {}

 protected:
  const ServiceParts& parts_;
  const Caller caller_;
  // Whether the Hello has come.
  bool greeted_ = false;
};

class AgentStream : public GreetedStream<v1::AgentMessage, v1::AgentDirective> {
 public:
  using GreetedStream::GreetedStream;
  using PeerStream::Send;
  void Send(const cluster::AgentOrder& order) override {
    v1::AgentDirective directive = ToWire(order);
    if (directive.has_start_worker()) {
      auto* start = directive.mutable_start_worker();
      start->set_secret(parts_.secrets->OfProcess(FromWire(start->worker())));
    }
    Put(directive);
  }

 protected:
  absl::Status Take(const v1::AgentMessage& message, cluster::Cluster& cluster,
                    absl::Time now) override {
    if (!greeted_) return Greet(message, cluster, now);
    switch (message.kind_case()) {
      case v1::AgentMessage::kHeartbeat:  // see TakeBeat
        break;
      case v1::AgentMessage::kWorkerStarted:
        cluster.Handle(id(),
                       cluster::RunningWorker{FromWire(message.worker_started().worker()),
                                              message.worker_started().pid()},
                       now);
        break;
      case v1::AgentMessage::kWorkerExit:
        cluster.Handle(id(), FromWire(message.worker_exit()), now);
        break;
      case v1::AgentMessage::kWorkerLog: {
        const auto& log = message.worker_log();
        cluster.Handle(
            id(),
            cluster::LogLines{FromWire(log.worker()), {log.lines().begin(), log.lines().end()}},
            now);
        break;
      }
      case v1::AgentMessage::kSpooledReports: {
        std::vector<cluster::Report> reports;
        for (const std::string& bytes : message.spooled_reports().reports()) {
          v1::WorkerReport report;
          if (!report.ParseFromString(bytes)) {
            return Invalid("a spooled report that is not a WorkerReport");
          }
          RETURN_IF_ERROR(LimitTexts(&report));
          reports.push_back(FromWire(report));
        }
        cluster.Handle(
            id(), cluster::SpooledReports{FromWire(message.spooled_reports().worker()), reports},
            now);
        break;
      }
      case v1::AgentMessage::kDraining:
        cluster.Handle(id(), cluster::AgentStops{message.draining().reason()}, now);
        break;
      case v1::AgentMessage::kHello:
        return Invalid("a second Hello");
      case v1::AgentMessage::kSlotQuarantine:
        cluster.Handle(id(), FromWire(message.slot_quarantine()), now);
        break;
      case v1::AgentMessage::KIND_NOT_SET:
        break;
    }
    return absl::OkStatus();
  }

  bool IsBeat(const v1::AgentMessage& message) const override { return message.has_heartbeat(); }
  bool IsUrgent(const v1::AgentMessage& message) const override { return message.has_draining(); }
  void TakeBeat(const v1::AgentMessage& message, cluster::Cluster& cluster,
                absl::Time came) override {
    if (message.has_draining()) {
      return parts_.peers->SendNotices(*parts_.engine, cluster, node_,
                                       cluster::WhyAgentStops(node_));
    }
    // A heartbeat is acknowledged at once, without the store. Nothing in it must be durable, and a
    // slow disk must not end the agents' leases.
    if (!cluster.AgentHeard(id(), came) || message.heartbeat().sequence() == 0) return;
    v1::AgentDirective ack;
    ack.mutable_heartbeat_ack()->set_sequence(message.heartbeat().sequence());
    ack.mutable_heartbeat_ack()->set_workers_activity(cluster.overview().DrainActivity(id()));
    Put(ack);
  }
  uint64_t LogLinesOf(const v1::AgentMessage& message) const override {
    return static_cast<uint64_t>(message.worker_log().lines_size());
  }
  void LinesLeftOut(uint64_t lines, const v1::AgentMessage& before, cluster::Cluster& cluster,
                    absl::Time now) override {
    cluster.Handle(id(),
                   cluster::LogLines{FromWire(before.worker_log().worker()),
                                     {absl::StrCat("(", lines,
                                                   " lines of this node are left out: the "
                                                   "coordinator could not keep up)")}},
                   now);
  }

 private:
  absl::Status Greet(const v1::AgentMessage& message, cluster::Cluster& cluster, absl::Time now) {
    const v1::AgentHello& hello = message.hello();
    if (!message.has_hello() || hello.node().empty() || hello.incarnation().empty() ||
        (hello.slots() == 0 && hello.gpus().empty())) {
      return Invalid("expected a Hello with node, incarnation and at least one slot or GPU first");
    }
    RETURN_IF_ERROR(CheckOffer(hello));
    RETURN_IF_ERROR(AgentMayBe(caller_, hello.node()));
    greeted_ = true;
    node_ = hello.node();
    return cluster.AttachAgent(id(), FromWire(hello), now);
  }

  std::string node_;
};

class WorkerStream : public GreetedStream<v1::WorkerMessage, v1::WorkerDirective> {
 public:
  using GreetedStream::GreetedStream;
  using PeerStream::Send;
  void Send(const cluster::WorkerOrder& order) override {
    v1::WorkerDirective directive = ToWire(order);
    if (directive.has_welcome()) {
      directive.mutable_welcome()->set_generation_secret(parts_.secrets->OfGeneration(worker_));
    }
    Put(directive);
  }

 protected:
  absl::Status Take(const v1::WorkerMessage& message, cluster::Cluster& cluster,
                    absl::Time now) override {
    if (!greeted_) {
      if (!message.has_hello()) return Invalid("expected a Hello first");
      greeted_ = true;
      worker_ = FromWire(message.hello().worker());
      RETURN_IF_ERROR(parts_.secrets->Check(worker_, message.hello().secret(),
                                            /*needed=*/caller_.kind == Caller::Kind::kCertificate));
      return cluster.AttachWorker(id(), FromWire(message.hello()), now);
    }
    switch (message.kind_case()) {
      case v1::WorkerMessage::kHeartbeat:  // see TakeBeat
        break;
      case v1::WorkerMessage::kReport:
        return cluster.WorkerReported(id(), FromWire(message.report()), now);
      case v1::WorkerMessage::kHello:
        return Invalid("a second Hello");
      case v1::WorkerMessage::KIND_NOT_SET:
        break;
    }
    return absl::OkStatus();
  }

  bool IsBeat(const v1::WorkerMessage& message) const override { return message.has_heartbeat(); }
  void TakeBeat(const v1::WorkerMessage& message, cluster::Cluster& cluster,
                absl::Time came) override {
    if (!cluster.WorkerBeat(id(), FromWire(message.heartbeat()), came) ||
        message.heartbeat().sequence() == 0) {
      return;
    }
    v1::WorkerDirective ack;
    ack.mutable_heartbeat_ack()->set_sequence(message.heartbeat().sequence());
    Put(ack);
  }

 private:
  cluster::WorkerId worker_;
};

class RefusedFile final : public grpc::ServerReadReactor<v1::FilePiece> {
 public:
  explicit RefusedFile(const absl::Status& why) { Finish(ToWire(why)); }
  void OnDone() override { delete this; }
};

// Opens the stream of a peer.
template <typename Stream>
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Open(
    const ServiceParts& parts, const grpc::CallbackServerContext& context, const char* method) {
  auto stream = std::make_shared<Stream>(parts, CallerOf(context), method);
  stream->Begin();
  return stream.get();
}

class AgentService final
    : public v1::AgentService::WithRawCallbackMethod_Attach<
          v1::AgentService::WithCallbackMethod_SendFile<v1::AgentService::Service>> {
 public:
  explicit AgentService(const ServiceParts& parts) : parts_(parts) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Attach(
      grpc::CallbackServerContext* context) override {
    return Open<AgentStream>(parts_, *context, "/muster.v1.AgentService/Attach");
  }
  grpc::ServerReadReactor<v1::FilePiece>* SendFile(grpc::CallbackServerContext* context,
                                                   v1::SendFileResponse*) override {
    const absl::Status refused =
        parts_.authorize(CallerOf(*context), "/muster.v1.AgentService/SendFile");
    if (!refused.ok()) return new RefusedFile(refused);
    return parts_.transfers->AcceptAgent();
  }

 private:
  const ServiceParts parts_;
};

class WorkerService final
    : public v1::WorkerService::WithRawCallbackMethod_Attach<v1::WorkerService::Service> {
 public:
  explicit WorkerService(const ServiceParts& parts) : parts_(parts) {}

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Attach(
      grpc::CallbackServerContext* context) override {
    return Open<WorkerStream>(parts_, *context, "/muster.v1.WorkerService/Attach");
  }

 private:
  const ServiceParts parts_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewAgentService(const ServiceParts& parts) {
  return std::make_unique<AgentService>(parts);
}

std::unique_ptr<grpc::Service> NewWorkerService(const ServiceParts& parts) {
  return std::make_unique<WorkerService>(parts);
}

}  // namespace muster::service
