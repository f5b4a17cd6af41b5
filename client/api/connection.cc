#include "client/api/connection.h"

#include <algorithm>

#include "client/api/utf8_texts.h"
#include "common/rpc/error.h"

namespace muster::client {

absl::Status Connection::CallStatus(const grpc::Status& status) const {
  absl::Status result = FromGrpc(status);
  // Errors of the coordinator itself have a reason; those of the connection have none.
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
  // In whole seconds: what is left of several attempts' time is seldom a round number.
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
    // The last attempt, which may begin shortly before the deadline, gets a moment.
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
