#include <grpcpp/alarm.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/caller.h"
#include "common/rpc/proto_time.h"
#include "common/status/status.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/admission.h"
#include "coordinator/service/follow.h"
#include "coordinator/service/peer_stream.h"
#include "coordinator/service/permit.h"
#include "coordinator/service/request.h"
#include "coordinator/service/services.h"
#include "coordinator/service/transfers.h"
#include "coordinator/service/wire.h"
#include "proto/muster/v1/operation_service.grpc.pb.h"

namespace muster::service {
namespace {

constexpr absl::Duration kLongestWait = absl::Minutes(10);

// A call that answers when an operation is done, or when the timeout has passed. Everything runs on
// the engine's thread, except the functions that gRPC calls.
class OperationWait : public grpc::ServerUnaryReactor,
                      public JobFollower,
                      public std::enable_shared_from_this<OperationWait> {
 public:
  OperationWait(Engine* engine, Followers* followers, OperationId id, Follows by,
                absl::Duration timeout, v1::Operation* response)
      : JobFollower(engine, followers, std::move(id.job_id), std::move(by)),
        number_(id.number),
        timeout_(timeout),
        response_(response) {}

  // Starts the wait. Called once, right after construction.
  void Begin() {
    self_ = shared_from_this();
    engine().Read([self = self_](const absl::Status& committed) {
      if (!self->Enter(committed)) return;
      self->alarm_.Set(absl::ToChronoTime(absl::Now() + self->timeout_),
                       [weak = std::weak_ptr(self)](bool due) {
                         const auto waiting = weak.lock();
                         if (!due || waiting == nullptr) return;
                         waiting->engine().Read([waiting](const absl::Status& committed) {
                           if (!committed.ok()) return waiting->End(committed);
                           waiting->Answer();
                         });
                       });
      self->Poke();
    });
  }

  void Poke() override {
    const commands::Command* command = job() == nullptr ? nullptr : job()->commands.Find(number_);
    if (command == nullptr || command->outcome.has_value()) Answer();
  }
  void End(const absl::Status& why) override {
    if (!Leave()) return;
    alarm_.Cancel();
    Finish(ToWire(why, job_id()));
  }
  void JobDeleted() override { End(NoSuchJob(job_id())); }

  void OnCancel() override {
    engine().Aside([self = self_](cluster::Cluster&, absl::Time) { self->End(ClientGone()); });
  }
  void OnDone() override { self_.reset(); }

 private:
  void Answer() {
    if (!ended()) End(FillOperation(engine().cluster(), job_id(), number_, response_));
  }

  const uint64_t number_;
  const absl::Duration timeout_;
  v1::Operation* const response_;
  // A reference to this object until gRPC is done with it.
  std::shared_ptr<OperationWait> self_;
  grpc::Alarm alarm_;
};

// The operation's file, and the stream of the agent that has it. Used on the engine's thread.
struct Sender {
  DownloadFile file;
  PeerStream* stream = nullptr;
};
absl::StatusOr<Sender> SenderOf(const cluster::Cluster& cluster, const PeerStreams& peers,
                                const OperationId& id) {
  const jobs::Job* job = cluster.Find(id.job_id);
  if (job == nullptr) return NoSuchJob(id.job_id);
  Sender sender;
  ASSIGN_OR_RETURN(sender.file, DownloadOf(*job, id.number));
  ASSIGN_OR_RETURN(const auto stream, AgentFor(sender.file, cluster.membership()));
  sender.stream = peers.Find(stream);
  // The stream has just ended.
  if (sender.stream == nullptr) {
    return Refuse(absl::StatusCode::kUnavailable, "NODE_NOT_ATTACHED",
                  absl::StrCat("the agent of node '", sender.file.node, "' is not attached"),
                  {{"node", sender.file.node}});
  }
  return sender;
}

absl::Duration TimeoutOf(const v1::WaitOperationRequest& request) {
  const absl::Duration asked = FromProto(request.timeout());
  return asked <= absl::ZeroDuration() ? kLongestWait : std::min(asked, kLongestWait);
}

class OperationService final : public Admitting<v1::OperationService::CallbackService> {
 public:
  explicit OperationService(const ServiceParts& parts) : Admitting(parts.authorize), parts_(parts) {
    Admits("Get", &OperationService::Get);
    Admits("List", &OperationService::List);
    Admits("Wait", &OperationService::Wait);
    Admits("Cancel", &OperationService::Cancel);
    Admits("Download", &OperationService::Download);
    Admits("FinishDownload", &OperationService::FinishDownload);
  }

 private:
  Reactor* Get(Context* context, const v1::GetOperationRequest* request,
               v1::Operation* response) override {
    const auto id = ParseOperationName(request->name());
    if (!id.ok()) return EndCall(context, id.status());
    return ReadAndAnswer(parts_.engine, context, id->job_id, [=, this] {
      return FillOperation(parts_.engine->cluster(), id->job_id, id->number, response);
    });
  }

  Reactor* List(Context* context, const v1::ListOperationsRequest* request,
                v1::ListOperationsResponse* response) override {
    // The token is the number of the last operation on the previous page.
    const auto page = PageOf(request->page_token(), request->page_size(), 0);
    if (!page.ok()) return EndCall(context, page.status());
    return ReadAndAnswer(
        parts_.engine, context, request->job_id(), [=, this, page = *page]() -> absl::Status {
          const cluster::Cluster& cluster = parts_.engine->cluster();
          const jobs::Job* job = cluster.Find(request->job_id());
          if (job == nullptr) return NoSuchJob(request->job_id());
          const auto& commands = job->commands.commands();
          size_t next = static_cast<size_t>(page.token);
          const size_t end = std::min(commands.size(), next + static_cast<size_t>(page.size));
          size_t bytes = 0;
          for (; next < end && bytes <= kLimits.page_bytes; ++next) {
            v1::Operation* operation = response->add_operations();
            *operation = ToWire(*job, commands[next], cluster);
            bytes += operation->ByteSizeLong();
          }
          if (next < commands.size()) response->set_next_page_token(absl::StrCat(next));
          return absl::OkStatus();
        });
  }

  Reactor* Wait(Context* context, const v1::WaitOperationRequest* request,
                v1::Operation* response) override {
    const auto id = ParseOperationName(request->name());
    if (!id.ok()) return EndCall(context, id.status());
    const Follows by{
        .peer = context->peer(),
        .permit = PermitOf(CallerOf(*context), "/muster.v1.OperationService/Wait", authorize())};
    const auto waiting = std::make_shared<OperationWait>(parts_.engine, parts_.jobs, *id, by,
                                                         TimeoutOf(*request), response);
    waiting->Begin();
    return waiting.get();
  }

  Reactor* Cancel(Context* context, const v1::CancelOperationRequest* request,
                  v1::Operation* response) override {
    const auto id = ParseOperationName(request->name());
    if (!id.ok()) return EndCall(context, id.status());
    v1::Command contents;
    contents.mutable_cancel()->set_target(id->number);
    const cluster::CommandRequest command{.job_id = id->job_id,
                                          .request_id = request->request_id(),
                                          .fingerprint = FingerprintOf("cancel", *request),
                                          .command = {.kind = v1::Operation::CANCEL,
                                                      .contents = contents.SerializeAsString(),
                                                      .target = id->number,
                                                      .requested_by = request->requested_by(),
                                                      .requester = RequesterOf(context)}};
    return GiveCommand(
        parts_.engine, context, command.job_id,
        [command](cluster::Cluster& cluster, absl::Time now) {
          return cluster.Cancel(command, now);
        },
        response);
  }

  grpc::ServerWriteReactor<v1::FilePiece>* Download(Context*,
                                                    const v1::DownloadRequest* request) override {
    const auto [stream, transfer] = parts_.transfers->AcceptClient();
    const auto id = ParseOperationName(request->name());
    if (!id.ok()) {
      transfer->Fail(id.status());
      return stream;
    }
    parts_.engine->Read([this, id = *id, offset = request->offset(),
                         transfer = transfer](const absl::Status& committed) {
      if (!committed.ok()) return transfer->Fail(committed);
      const auto sender = SenderOf(parts_.engine->cluster(), *parts_.peers, id);
      if (!sender.ok()) return transfer->Fail(With(sender.status(), {{"job", id.job_id}}));
      if (offset > sender->file.bytes) {
        return transfer->Fail(Refuse(
            absl::StatusCode::kInvalidArgument, "OFFSET_INVALID",
            absl::StrCat("offset is ", offset, ", the file has ", sender->file.bytes, " bytes"),
            {{"field", "offset"}, {"job", id.job_id}}));
      }
      const auto name = parts_.transfers->Begin(transfer, sender->file.node);
      if (!name.ok()) return transfer->Fail(name.status());
      sender->stream->Send(cluster::AgentOrder(cluster::SendDownload{.transfer = *name,
                                                                     .job = id.job_id,
                                                                     .command = id.number,
                                                                     .bytes = sender->file.bytes,
                                                                     .offset = offset}));
    });
    return stream;
  }

  Reactor* FinishDownload(Context* context, const v1::FinishDownloadRequest* request,
                          v1::FinishDownloadResponse*) override {
    const auto id = ParseOperationName(request->name());
    if (!id.ok()) return EndCall(context, id.status());
    return ReadAndAnswer(parts_.engine, context, id->job_id, [id = *id, this]() -> absl::Status {
      ASSIGN_OR_RETURN(const Sender sender, SenderOf(parts_.engine->cluster(), *parts_.peers, id));
      sender.stream->Send(
          cluster::AgentOrder(cluster::RemoveDownload{.job = id.job_id, .command = id.number}));
      return absl::OkStatus();
    });
  }

  const ServiceParts parts_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewOperationService(const ServiceParts& parts) {
  return std::make_unique<OperationService>(parts);
}

}  // namespace muster::service
