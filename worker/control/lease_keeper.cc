#include "worker/control/lease_keeper.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::control {
namespace {

// The longest wait at a time. Waits use a clock that stops while the machine sleeps, but the lease
// continues.
constexpr absl::Duration kLongestWait = absl::Seconds(1);

}  // namespace

LeaseKeeper::LeaseKeeper(Events events)
    : events_(std::move(events)), thread_([this] { Watch(); }) {}

LeaseKeeper::~LeaseKeeper() {
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  changed_.Changed();
  thread_.join();
}

void LeaseKeeper::Welcomed(const LeaseTerms& terms, absl::Time sent, bool never_ends) {
  absl::MutexLock lock(&mutex_);
  lease_.Welcomed(terms, sent);
  never_ends_ = never_ends;
  Update();
}

uint64_t LeaseKeeper::Beat() {
  absl::MutexLock lock(&mutex_);
  return lease_.Beat(events_.clock());
}

void LeaseKeeper::Acked(uint64_t sequence) {
  absl::MutexLock lock(&mutex_);
  lease_.Acked(sequence);
  Update();
}

void LeaseKeeper::Broken() {
  absl::MutexLock lock(&mutex_);
  lease_.Broken();
  Update();
}

void LeaseKeeper::Refused(absl::Time begun) {
  absl::MutexLock lock(&mutex_);
  lease_.Refused(begun);
  Update();
}

void LeaseKeeper::Update() {
  // A lease that is over stays over: nothing renews it before the process ends.
  if (!StillMine().ok()) return;
  const absl::Time end = never_ends_ ? absl::InfiniteFuture() : lease_.End();
  end_ = end == absl::InfiniteFuture() ? INT64_MAX : absl::ToUnixNanos(end);
  ++updates_;
  changed_.Changed();
}

absl::Status LeaseKeeper::StillMine() const {
  const int64_t end = end_;
  if (end == INT64_MAX || absl::ToUnixNanos(events_.clock()) < end) return absl::OkStatus();
  return absl::UnavailableError(
      "the lease is over: the coordinator did not answer in time, and may have given this rank to "
      "another process");
}

void LeaseKeeper::Watch() {
  while (true) {
    switch (AwaitNews()) {
      case News::kClosing:
        return;
      case News::kOver:
        events_.on_over(StillMine());
        return;
      case News::kSilent:
        events_.on_silent();
        break;
    }
  }
}

LeaseKeeper::News LeaseKeeper::AwaitNews() {
  absl::MutexLock lock(&mutex_);
  while (!closing_) {
    if (!StillMine().ok()) return News::kOver;
    const absl::Time now = events_.clock();
    const absl::Time silent_from = lease_.SilentFrom();
    if (now >= silent_from && told_silent_ != silent_from) {
      told_silent_ = silent_from;
      return News::kSilent;
    }
    absl::Duration wait = kLongestWait;
    if (told_silent_ != silent_from) wait = std::min(wait, silent_from - now);
    if (const int64_t end = end_; end != INT64_MAX) {
      wait = std::min(wait, absl::FromUnixNanos(end) - now);
    }
    const uint64_t seen = updates_;
    changed_.Await(mutex_, wait, [this, seen]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return closing_ || updates_ != seen;
    });
  }
  return News::kClosing;
}

}  // namespace muster::control
