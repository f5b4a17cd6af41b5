#include "client/api/connection.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <utility>

#include "common/jobspec/fields.h"
#include "common/rpc/deadline.h"
#include "common/rpc/error.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "common/utf8/utf8.h"

namespace muster::client {
namespace {

// The pause between attempts: long enough for a coordinator that starts, and too short to be
// noticed.
constexpr absl::Duration kPause = absl::Milliseconds(200);

}  // namespace

Retries::Retries(std::shared_ptr<grpc::Channel> channel, absl::Duration retry_for,
                 Cancellation* cancellation)
    : channel_(std::move(channel)),
      retry_for_(retry_for),
      cancellation_(cancellation != nullptr ? cancellation : &never_) {}

absl::Status Retries::Await(const absl::Status& broken, absl::Time deadline) {
  const absl::Time now = SteadyNow();
  broken_since_ = std::min(broken_since_, now);
  const absl::Duration left_to_retry = broken_since_ + retry_for_ - now;
  const absl::Duration left = deadline - now;
  if (left_to_retry <= absl::ZeroDuration()) return broken;
  if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError(Message(broken));
  const absl::Time until = now + std::min({kPause, left_to_retry, left});
  channel_->WaitForConnected(DeadlineAfter(until - now));
  // The rest of the pause, if the channel is connected.
  if (cancellation_->WaitFor(until - SteadyNow())) {
    return absl::CancelledError("interrupted");
  }
  return absl::OkStatus();
}

absl::Status CheckTexts(const google::protobuf::Message& request) {
  absl::Status status;
  jobspec::ForEachValue(request, [&status](const jobspec::FieldValue& value) {
    if (!status.ok() || value.field->type() != google::protobuf::FieldDescriptor::TYPE_STRING) {
      return;
    }
    const std::string text = value.String();
    if (ValidUtf8Prefix(text) == text.size()) return;
    status = absl::InvalidArgumentError(
        absl::StrCat(value.path, ": '", text,
                     "' is not UTF-8; if it is a path, give the file or folder another name"));
  });
  return status;
}

absl::Status Connection::CallStatus(const grpc::Status& status) const {
  absl::Status result = FromGrpc(status);
  // Errors of the coordinator itself have a reason; errors of the connection have none.
  if (!absl::IsUnavailable(result) || !ErrorReason(result).empty()) return result;
  return absl::UnavailableError(
      absl::StrCat("no coordinator answers at ", address_, " (", result.message(), ")"));
}

absl::Status Connection::CallOnce(const google::protobuf::Message& request, const Attempt& attempt,
                                  Cancellation* cancellation, absl::Duration timeout) const {
  RETURN_IF_ERROR(CheckTexts(request));
  grpc::ClientContext context;
  context.set_deadline(DeadlineAfter(timeout));
  const Cancellation::Scope scope(cancellation, &context);
  const grpc::Status status = attempt(&context);
  if (status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) return CallStatus(status);
  // Whole seconds: the rest of several attempts' time is seldom a round number.
  return absl::UnavailableError(
      absl::StrCat("the coordinator at ", address_, " did not answer within ",
                   absl::FormatDuration(absl::Ceil(timeout, absl::Seconds(1)))));
}

bool Connection::Reachable() const {
  const gpr_timespec deadline = DeadlineAfter(kCallTimeout);
  while (true) {
    const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return true;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) return false;
    if (!channel_->WaitForStateChange(state, deadline)) return false;
  }
}

absl::Status Connection::Repeat(const google::protobuf::Message& request, const Attempt& attempt,
                                const RetryOptions& options, absl::Time deadline) const {
  Retries retries(channel_, options.retry_for, options.cancellation);
  const bool was_there = Reachable();
  while (true) {
    // The last attempt, which may begin shortly before the deadline, gets at least a second.
    const absl::Duration left = std::clamp(deadline - SteadyNow(), absl::Seconds(1), kCallTimeout);
    const absl::Status status = CallOnce(request, attempt, retries.cancellation(), left);
    if (retries.cancellation()->cancelled() && !status.ok()) {
      return absl::CancelledError("interrupted");
    }
    const bool broken = absl::IsUnavailable(status) && was_there;
    if (!broken || SteadyNow() >= deadline) return status;
    RETURN_IF_ERROR(retries.Await(status));
  }
}

}  // namespace muster::client
