#include "worker/control/spooled_outbox.h"

#include <algorithm>

namespace muster::control {
namespace {

// The shortest time between two writes to the disk while the coordinator cannot be reached.
constexpr absl::Duration kSpoolPause = absl::Milliseconds(200);
// The time until the agent's disk is tried again after a failed write.
constexpr absl::Duration kSpoolRetry = absl::Seconds(1);

}  // namespace

void SpooledOutbox::Settle() {
  settle_ = last();
  unspooled_ = 0;
}

SpoolWork SpooledOutbox::NextWork(absl::Time now, bool attached, absl::Duration timeout,
                                  uint64_t through, size_t limit) {
  const bool settling = settle_ > spooled_ && !empty();
  if (attached && !settling) {
    const bool told = empty() && through > 0;
    return {.kind = told ? SpoolWork::Kind::kRemove : SpoolWork::Kind::kNothing};
  }
  const absl::Time due = std::max(away_since_ + timeout, spooled_at_ + kSpoolPause);
  if (!flushing_ && !settling && now < due) return {.again = std::max(due, retry_at_)};
  if (now < retry_at_) {
    // A caller that waits for this need not wait any longer.
    unspooled_ = last();
    return {.again = retry_at_};
  }
  spooled_at_ = now;
  bool replace = false;
  while (bytes() > limit && Thin()) replace = true;
  return {.kind = SpoolWork::Kind::kWrite,
          .reports = After(replace ? 0 : through),
          .last = last(),
          .replace = replace,
          .sync = flushing_,
          .was_well = retry_at_ == absl::InfinitePast()};
}

void SpooledOutbox::Written(const SpoolWork& work, bool ok, absl::Time now) {
  retry_at_ = ok ? absl::InfinitePast() : now + kSpoolRetry;
  if (!ok) {
    unspooled_ = work.last;
    return;
  }
  spooled_ = work.last;
  if (work.sync) flushed_ = work.last;
}

}  // namespace muster::control
