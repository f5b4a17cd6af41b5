#include "worker/agent/coordinator_link.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/error.h"
#include "common/rpc/rpc.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "proto/muster/v1/agent_service.grpc.pb.h"
#include "worker/agent/wire.h"

namespace muster::agent {
namespace {

// The least number of attempts to attach within a lease, so that a lease does not end during a
// pause between two attempts.
constexpr int kAttemptsPerLease = 10;

}  // namespace

void Outbox::Push(v1::AgentMessage message) { waiting_.push_back({.message = std::move(message)}); }

void Outbox::PushAfterLogs(const WorkerId& worker, v1::AgentMessage message) {
  waiting_.push_back({.message = std::move(message), .after_logs_of = worker});
}

void Outbox::PushHeartbeat(v1::AgentMessage heartbeat) {
  // A heartbeat comes first, because the lease depends on it. A slow coordinator gets only the
  // newest heartbeat.
  if (!waiting_.empty() && waiting_.front().message.has_heartbeat()) waiting_.pop_front();
  waiting_.push_front({.message = std::move(heartbeat)});
}

std::optional<v1::AgentMessage> Outbox::Take(bool welcomed) {
  if (waiting_.empty() || waiting_.front().after_logs_of.has_value()) {
    if (!welcomed) return std::nullopt;
    auto batch = waiting_.empty() ? logs_.Take() : logs_.TakeFrom(*waiting_.front().after_logs_of);
    if (batch.has_value()) return ToMessage(*std::move(batch));
  }
  if (waiting_.empty()) return std::nullopt;
  v1::AgentMessage message = std::move(waiting_.front().message);
  waiting_.pop_front();
  return message;
}

// One AgentService.Attach stream: from its opening to its end. A new attempt is a new object.
class CoordinatorLink::Stream
    : private grpc::ClientBidiReactor<v1::AgentMessage, v1::AgentDirective> {
 public:
  // The functions that gRPC's threads call. Directives come one at a time; on_closed is the last
  // call.
  struct Events {
    std::function<void(v1::AgentDirective)> on_directive;
    // The message was written, so the next message may be written.
    std::function<void()> on_written;
    std::function<void(absl::Status)> on_closed;
  };

  static std::unique_ptr<Stream> Open(const std::shared_ptr<grpc::Channel>& channel,
                                      Events events) {
    auto stream = std::unique_ptr<Stream>(new Stream(channel, std::move(events)));
    stream->stub_->async()->Attach(&stream->context_, stream.get());
    // The hold is needed because other threads than the reactor's write: OnDone is not called
    // before the stream has ended.
    stream->AddHold();
    stream->StartRead(&stream->incoming_);
    stream->StartCall();
    return stream;
  }
  // Cancels an open stream, and returns after on_closed.
  ~Stream() override {
    context_.TryCancel();
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&done_));
  }

  // Writes a message. Call it only after on_written of the message before. After the end of the
  // stream the message is dropped.
  void Write(v1::AgentMessage message) {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    outgoing_ = std::move(message);
    StartWrite(&outgoing_);
  }

 private:
  Stream(const std::shared_ptr<grpc::Channel>& channel, Events events)
      : stub_(v1::AgentService::NewStub(channel)), events_(std::move(events)) {}

  void OnReadDone(bool ok) override {
    if (ok) {
      events_.on_directive(std::move(incoming_));
      incoming_.Clear();
      StartRead(&incoming_);
      return;
    }
    {
      absl::MutexLock lock(&mutex_);
      ended_ = true;
    }
    RemoveHold();
  }
  void OnWriteDone(bool ok) override {
    if (ok) events_.on_written();
  }
  void OnDone(const grpc::Status& status) override {
    events_.on_closed(FromGrpc(status));
    // The lock is held to the end, because the destructor may run as soon as the lock is released.
    absl::MutexLock lock(&mutex_);
    done_ = true;
  }

  const std::unique_ptr<v1::AgentService::Stub> stub_;
  const Events events_;
  grpc::ClientContext context_;
  v1::AgentDirective incoming_;
  v1::AgentMessage outgoing_;

  absl::Mutex mutex_;
  // True when no message can be written to the stream any more.
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

CoordinatorLink::CoordinatorLink(LinkOptions options, LogQueue* logs, Mailbox* mailbox,
                                 Events events)
    : options_(std::move(options)),
      mailbox_(*mailbox),
      events_(std::move(events)),
      outbox_(logs),
      jitter_(std::random_device()()),
      channel_(OpenChannel(options_.coordinator, {}, options_.credentials)),
      retry_(options_.first_retry),
      connect_at_(SteadyNow()),
      probe_(options_.coordinator, [this](absl::Time begun) {
        mailbox_.Post([this, begun] { events_.on_nobody_listens(begun); });
      }) {}

CoordinatorLink::~CoordinatorLink() = default;

void CoordinatorLink::Connect() {
  connect_at_ = absl::InfiniteFuture();
  // The Hello must come first, and contains all that matters. The outbox may contain messages of
  // effects that the core decided before it learned of the end of the old stream.
  outbox_.Clear();
  const uint64_t attempt = ++attempt_;
  const auto post = [this, attempt](Mailbox::Task task) {
    mailbox_.Post([this, attempt, task = std::move(task)] {
      if (attempt == attempt_) task();
    });
  };
  Stream::Events events;
  events.on_directive = [this, post](v1::AgentDirective directive) {
    post([this, directive = std::move(directive)] { events_.on_directive(directive); });
  };
  events.on_written = [this, post] { post([this] { writing_ = false; }); };
  events.on_closed = [this, post](absl::Status status) {
    post([this, status] { OnClosed(status); });
  };
  opened_ = SteadyNow();
  stream_ = Stream::Open(channel_, std::move(events));
}

void CoordinatorLink::BeWelcome() {
  spdlog::info("attached to the coordinator at {}", options_.coordinator);
  probe_.Stop();
  welcomed_ = true;
  away_ = false;
  retry_ = options_.first_retry;
}

void CoordinatorLink::Drop(absl::Duration lease) {
  spdlog::warn("the coordinator at {} does not answer; trying another connection",
               options_.coordinator);
  ++attempt_;
  NewChannel(lease);
  OnClosed(absl::UnavailableError("it does not answer"));
}

void CoordinatorLink::OnClosed(const absl::Status& status) {
  stream_.reset();
  writing_ = welcomed_ = false;
  events_.on_closed(status);
}

void CoordinatorLink::PlanNext(const absl::Status& why, absl::Duration lease) {
  // A certificate belongs to a connection, so a renewed certificate needs a new connection.
  if (absl::IsPermissionDenied(why) || absl::IsUnauthenticated(why)) NewChannel(lease);
  probe_.Begin(lease / kAttemptsPerLease);
  if (!std::exchange(away_, true)) {
    // A failed TLS handshake looks like any broken connection.
    const bool tcp = !absl::StartsWith(options_.coordinator, "unix:");
    spdlog::warn("no connection to the coordinator at {} ({}); trying again{}",
                 options_.coordinator, why.ok() ? "it closed the stream" : Message(why),
                 tcp && absl::IsUnavailable(why)
                     ? "; does musterd run there, and if its port needs certificates: are "
                       "--tls-certificate, --tls-key and --tls-ca given and of its CA?"
                     : "");
  }
  // The pauses are random, because all agents of a cluster lose their coordinator at the same
  // moment.
  const absl::Duration pause = std::min(retry_, lease / kAttemptsPerLease);
  connect_at_ = SteadyNow() + pause * std::uniform_real_distribution<>(0.5, 1.0)(jitter_);
  retry_ = std::min(2 * retry_, options_.last_retry);
}

void CoordinatorLink::Close() { stream_.reset(); }

void CoordinatorLink::NewChannel(absl::Duration lease) {
  channel_ = OpenChannel(options_.coordinator, KeepAlive::Within(lease), options_.credentials);
}

void CoordinatorLink::Pump() {
  if (stream_ == nullptr || writing_) return;
  std::optional<v1::AgentMessage> message = outbox_.Take(welcomed_);
  if (!message.has_value()) return;
  writing_ = true;
  stream_->Write(*std::move(message));
}

}  // namespace muster::agent
