// The stream's reader: opens the stream, opens it again when it breaks, and handles received
// messages.
#include <grpcpp/client_context.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/deadline.h"
#include "common/rpc/error.h"
#include "common/rpc/proto_time.h"
#include "common/rpc/rpc.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "common/version/protocol.h"
#include "worker/control/control_stream_impl.h"

namespace muster::control {
namespace {

constexpr std::chrono::milliseconds kRetry(100);
// The pause while the coordinator cannot write its store.
constexpr std::chrono::milliseconds kRetryInTrouble(500);
// The longest wait for a connection. The end of this process may have to wait as long.
constexpr absl::Duration kConnecting = absl::Milliseconds(200);

LeaseTerms TermsOf(const v1::WorkerWelcome& welcome) {
  return {.lease = FromProto(welcome.lease()),
          .margin = FromProto(welcome.lease_margin()),
          .autonomy = FromProto(welcome.autonomy())};
}

bool IsRefusal(const absl::Status& status) {
  return status.code() == absl::StatusCode::kFailedPrecondition ||
         status.code() == absl::StatusCode::kNotFound ||
         status.code() == absl::StatusCode::kPermissionDenied ||
         status.code() == absl::StatusCode::kInvalidArgument;
}

}  // namespace

void ControlStreamImpl::ReadLoop() {
  while (true) {
    const absl::Status status = ReadOneConnection();
    bool broke = false;
    {
      absl::MutexLock lock(&mutex_);
      if (closing_) return;
      if (IsRefusal(status)) {
        refusal_ = status;
        changed_.Changed();
        if (!started_) return;  // Connect returns it
        break;
      }
      broke = std::exchange(attached_, false);
      if (broke) away_since_ = SteadyNow();
    }
    keeper_.Broken();
    const bool in_trouble = ErrorReason(status) == kStoreTrouble;
    if (in_trouble) Refused(opened_);
    if (broke) {
      knocker_.Begin(lease_ / kKnocksPerLease);
      spdlog::warn("the stream to the coordinator broke ({}); trying again", Message(status));
    }
    // Not absl::SleepFor (common/steady/condition.h).
    std::this_thread::sleep_for(in_trouble ? kRetryInTrouble : kRetry);
  }
  options_.on_fatal(Refusal());
}

void ControlStreamImpl::Refused(absl::Time begun) {
  keeper_.Refused(begun);
  absl::MutexLock lock(&mutex_);
  refused_ = begun;
  changed_.Changed();
}

void ControlStreamImpl::Reconnect() {
  absl::MutexLock lock(&mutex_);
  new_channel_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

absl::Status ControlStreamImpl::Refusal() const {
  absl::MutexLock lock(&mutex_);
  return *refusal_;
}

absl::Status ControlStreamImpl::ReadOneConnection() {
  grpc::ClientContext context;
  {
    absl::MutexLock lock(&mutex_);
    if (closing_) return absl::CancelledError("closing");
    if (std::exchange(new_channel_, false)) {
      channel_ = OpenChannel(options_.coordinator, KeepAlive::Within(lease_), options_.credentials);
      stub_ = v1::WorkerService::NewStub(channel_);
    }
  }
  // A call on a channel that is not connected fails at once, and gRPC works on a connection only
  // while some call waits for it. Without this wait, gRPC would continue to connect only every 5 s.
  if (!channel_->WaitForConnected(DeadlineAfter(kConnecting))) {
    return absl::UnavailableError("no connection");
  }
  {
    absl::MutexLock lock(&mutex_);
    if (closing_) return absl::CancelledError("closing");
    context_ = &context;
  }
  opened_ = SteadyNow();
  const std::unique_ptr<Stream> stream = stub_->Attach(&context);
  stream->Write(Hello());
  v1::WorkerDirective directive;
  while (stream->Read(&directive)) Handle(directive, stream.get());
  {
    absl::MutexLock lock(&mutex_);
    stream_ = nullptr;
    mutex_.Await(absl::Condition(
        +[](bool* writing) { return !*writing; }, &writing_));
  }
  const absl::Status status = FromGrpc(stream->Finish());
  absl::MutexLock lock(&mutex_);
  context_ = nullptr;
  return status.ok() ? absl::UnavailableError("the coordinator closed the stream") : status;
}

v1::WorkerMessage ControlStreamImpl::Hello() const {
  v1::WorkerMessage message;
  auto* hello = message.mutable_hello();
  *hello->mutable_worker() = options_.worker;
  hello->set_pid(options_.pid);
  hello->set_protocol(kWorkerProtocol);
  absl::MutexLock lock(&mutex_);
  hello->set_newest_command(commands_.size());
  hello->set_acked_report(outbox_.acknowledged());
  hello->set_secret(options_.secret);
  return message;
}

void ControlStreamImpl::Handle(const v1::WorkerDirective& directive, Stream* stream) {
  if (directive.has_checkpoint_recorded()) {
    const auto& names = directive.checkpoint_recorded().remove_names();
    if (!names.empty()) options_.on_remove({names.begin(), names.end()});
    return;
  }
  if (directive.has_heartbeat_ack()) return keeper_.Acked(directive.heartbeat_ack().sequence());
  if (directive.has_welcome()) {
    const v1::WorkerWelcome& welcome = directive.welcome();
    knocker_.Stop();
    lease_ = FromProto(welcome.lease());
    keeper_.Welcomed(TermsOf(welcome), opened_,
                     welcome.spec().when_cut_off() == v1::JobSpec::CONTINUE);
    if (welcomes_++ > 0) spdlog::info("attached to the coordinator again");
  }
  const bool notice = directive.has_preemption_notice() && !Preempted();
  Take(directive, stream);
  Wake();
  if (notice) {
    spdlog::info("{}: this worker ends at the next step boundary",
                 directive.preemption_notice().reason());
  }
}

void ControlStreamImpl::Take(const v1::WorkerDirective& directive, Stream* stream) {
  absl::MutexLock lock(&mutex_);
  switch (directive.kind_case()) {
    case v1::WorkerDirective::kWelcome:
      if (!first_welcome_.has_value()) first_welcome_ = directive.welcome();
      if (directive.welcome().has_rendezvous()) rendezvous_ = directive.welcome().rendezvous();
      outbox_.Rewind(directive.welcome().acked_sequence());
      attached_ = true;
      stream_ = stream;
      break;
    case v1::WorkerDirective::kExportGranted:
      granted_export_ = directive.export_granted().path();
      break;
    case v1::WorkerDirective::kRendezvous:
      rendezvous_ = directive.rendezvous();
      break;
    case v1::WorkerDirective::kCommand:
      if (directive.command().number() == commands_.size() + 1) {
        commands_.push_back(directive.command());
      }
      break;
    case v1::WorkerDirective::kPreemptionNotice:
      preempted_ = true;
      break;
    case v1::WorkerDirective::kReportAck:
      outbox_.Acknowledge(directive.report_ack().sequence());
      break;
    case v1::WorkerDirective::kHeartbeatAck:
    case v1::WorkerDirective::kCheckpointRecorded:
    case v1::WorkerDirective::KIND_NOT_SET:
      break;
  }
}

}  // namespace muster::control
