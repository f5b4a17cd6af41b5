#include "client/api/retries.h"

#include <algorithm>
#include <utility>

#include "common/rpc/deadline.h"
#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::client {
namespace {

// The pause between attempts: long enough not to overload a coordinator that starts, too short for
// people to notice.
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

}  // namespace muster::client
