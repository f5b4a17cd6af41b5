#include "client/api/retries.h"

#include <algorithm>

#include "common/status/status.h"
#include "common/steady/now.h"

namespace muster::client {
namespace {

// Between attempts: long enough not to storm a coordinator that is starting, too short for people
// to notice.
constexpr absl::Duration kPause = absl::Milliseconds(200);

}  // namespace

Retries::Retries(absl::Duration retry_for, Cancellation* cancellation)
    : retry_for_(retry_for), cancellation_(cancellation != nullptr ? cancellation : &never_) {}

absl::Status Retries::Await(const absl::Status& broken, absl::Time deadline) {
  const absl::Time now = SteadyNow();
  broken_since_ = std::min(broken_since_, now);
  const absl::Duration patience = broken_since_ + retry_for_ - now;
  const absl::Duration left = deadline - now;
  if (patience <= absl::ZeroDuration()) return broken;
  if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError(Message(broken));
  if (cancellation_->WaitFor(std::min({kPause, patience, left}))) {
    return absl::CancelledError("interrupted");
  }
  return absl::OkStatus();
}

}  // namespace muster::client
