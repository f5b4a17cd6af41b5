// The stream's reader: opens the stream, reopens a broken stream, and handles received messages.
#include <grpcpp/client_context.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

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
// The longest wait for a connection. The end of this process may have to wait for it.
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
    const bool refused = IsRefusal(status);
    bool broke = false;
    {
      absl::MutexLock lock(&mutex_);
      if (call_.closing) return;
      if (refused && !started_.has_value()) {
        started_ = status;  // Connect returns it
        changed_.Changed();
        return;
      }
      broke = !refused && std::exchange(call_.attached, false);
      if (broke) outbox_.BeAway(SteadyNow());
    }
    if (refused) return options_.on_fatal(status);
    keeper_.Broken();
    const bool in_trouble = ErrorReason(status) == kStoreTrouble;
    if (in_trouble) Refused(connection_.opened);
    if (broke) {
      probe_.Begin(connection_.lease / kProbesPerLease);
      spdlog::warn("the stream to the coordinator broke ({}); trying again", Message(status));
    }
    // The sleep avoids absl::SleepFor (common/steady/condition.h).
    std::this_thread::sleep_for(in_trouble ? kRetryInTrouble : kRetry);
  }
}

void ControlStreamImpl::Refused(absl::Time begun) {
  keeper_.Refused(begun);
  absl::MutexLock lock(&mutex_);
  call_.refused = begun;
  changed_.Changed();
}

void ControlStreamImpl::Reconnect() {
  absl::MutexLock lock(&mutex_);
  call_.new_channel = true;
  if (call_.context != nullptr) call_.context->TryCancel();
}

absl::Status ControlStreamImpl::ReadOneConnection() {
  grpc::ClientContext context;
  {
    absl::MutexLock lock(&mutex_);
    if (call_.closing) return absl::CancelledError("closing");
    if (std::exchange(call_.new_channel, false)) {
      connection_.channel = OpenChannel(options_.coordinator, KeepAlive::Within(connection_.lease),
                                        options_.credentials);
    }
  }
  // The wait is needed for two reasons. A call on a channel that is not connected fails at once.
  // And gRPC connects only while some call waits; otherwise it tries only every 5 s.
  if (!connection_.channel->WaitForConnected(DeadlineAfter(kConnecting))) {
    return absl::UnavailableError("no connection");
  }
  {
    absl::MutexLock lock(&mutex_);
    if (call_.closing) return absl::CancelledError("closing");
    call_.context = &context;
  }
  connection_.opened = SteadyNow();
  const auto stub = v1::WorkerService::NewStub(connection_.channel);
  const std::unique_ptr<Stream> stream = stub->Attach(&context);
  stream->Write(Hello());
  v1::WorkerDirective directive;
  while (stream->Read(&directive)) Handle(directive, stream.get());
  {
    absl::MutexLock lock(&mutex_);
    call_.stream = nullptr;
    mutex_.Await(absl::Condition(
        +[](bool* writing) { return !*writing; }, &call_.writing));
  }
  const absl::Status status = FromGrpc(stream->Finish());
  absl::MutexLock lock(&mutex_);
  call_.context = nullptr;
  return status.ok() ? absl::UnavailableError("the coordinator closed the stream") : status;
}

v1::WorkerMessage ControlStreamImpl::Hello() const {
  v1::WorkerMessage message;
  auto* hello = message.mutable_hello();
  *hello->mutable_worker() = options_.worker;
  hello->set_pid(options_.pid);
  hello->set_protocol(kWorkerProtocol);
  absl::MutexLock lock(&mutex_);
  hello->set_newest_command(received_.commands.size());
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
    probe_.Stop();
    connection_.lease = FromProto(welcome.lease());
    keeper_.Welcomed(TermsOf(welcome), connection_.opened,
                     welcome.spec().when_cut_off() == v1::JobSpec::CONTINUE);
  }
  bool welcomed_before = false;
  bool preempted_before = false;
  {
    absl::MutexLock lock(&mutex_);
    welcomed_before = received_.first_welcome.has_value();
    preempted_before = received_.preempted;
    received_.Take(directive);
    if (directive.has_report_ack()) outbox_.Acknowledge(directive.report_ack().sequence());
    if (directive.has_welcome()) {
      outbox_.Rewind(directive.welcome().acked_sequence());
      call_.attached = true;
      call_.stream = stream;
    }
  }
  Wake();
  if (directive.has_welcome() && welcomed_before) spdlog::info("attached to the coordinator again");
  if (directive.has_preemption_notice() && !preempted_before) {
    spdlog::info("{}: this worker ends at the next step boundary",
                 directive.preemption_notice().reason());
  }
}

}  // namespace muster::control
