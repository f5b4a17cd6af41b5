// The stream's writer: sends heartbeats and reports, and writes reports to the agent's disk while
// the coordinator cannot be reached.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/proto_time.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "worker/control/control_stream_impl.h"

namespace muster::control {
namespace {

// The shortest time between two writes to the disk while the coordinator cannot be reached.
constexpr absl::Duration kSpoolPause = absl::Milliseconds(200);
// The time until the agent's disk is tried again after a failed write.
constexpr absl::Duration kSpoolRetry = absl::Seconds(1);

}  // namespace

void ControlStreamImpl::WriteLoop() {
  const absl::Duration interval = FromProto(welcome().heartbeat_interval());
  absl::Time next_heartbeat = SteadyNow() + interval;
  while (true) {
    std::optional<v1::WorkerMessage> message;
    Stream* stream = nullptr;
    bool more = false;
    {
      absl::MutexLock lock(&mutex_);
      if (closing_) return;
      const absl::Time now = SteadyNow();
      // Heartbeats come first, so that they are sent even if the reports never end.
      const bool heartbeat_due = now >= next_heartbeat;
      if (heartbeat_due) next_heartbeat = now + interval;
      more = stream_ != nullptr && (heartbeat_due || outbox_.HasNext());
      if (more) {
        message = heartbeat_due ? Heartbeat() : NextReport();
        stream = stream_;
        writing_ = true;
      }
    }
    if (!more) {
      const absl::Time next_spool = Spool(interval);
      AwaitWork(std::min(next_heartbeat, next_spool) - SteadyNow());
      continue;
    }
    if (message->has_heartbeat()) {
      if (options_.measure) options_.measure(message->mutable_heartbeat());
      message->mutable_heartbeat()->set_sequence(keeper_.Beat());
    }
    const bool written = stream->Write(*message);
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    // A broken stream: the reader sees it too and opens another.
    if (!written && stream_ == stream) stream_ = nullptr;
  }
}

absl::Time ControlStreamImpl::Spool(absl::Duration timeout) {
  if (!spool_.enabled()) return absl::InfiniteFuture();
  const absl::Time now = SteadyNow();
  std::vector<std::string> fresh;
  uint64_t last = 0;
  bool attached = false;
  bool told = false;
  bool rewrite = false;
  bool flushing = false;
  {
    absl::MutexLock lock(&mutex_);
    told = outbox_.empty();
    flushing = flushing_;
    const bool settling = settle_ > spooled_ && !told;
    attached = attached_ && !settling;
    const absl::Time due = std::max(away_since_ + timeout, spooled_at_ + kSpoolPause);
    if (!attached && !flushing && !settling && now < due) return std::max(due, spool_retry_at_);
    if (!attached && now < spool_retry_at_) {
      // A caller that waits for this need not wait any longer.
      unspooled_ = outbox_.last();
      changed_.Changed();
      return spool_retry_at_;
    }
    while (!attached && outbox_.bytes() > spool_.limit() && outbox_.Thin()) rewrite = true;
    last = outbox_.last();
    if (!attached) fresh = outbox_.After(rewrite ? 0 : spool_.through());
  }
  if (attached) {
    if (told && spool_.through() > 0) spool_.Remove();
    return absl::InfiniteFuture();
  }
  if (rewrite) spool_.Reset();
  spooled_at_ = now;
  absl::Status status = fresh.empty() ? absl::OkStatus() : spool_.Add(fresh, last);
  if (status.ok() && flushing) status = spool_.Sync();
  if (!status.ok()) {
    if (!std::exchange(spool_failed_, true)) spdlog::error("{}", Message(status));
    spool_retry_at_ = SteadyNow() + kSpoolRetry;
    absl::MutexLock lock(&mutex_);
    unspooled_ = last;
    changed_.Changed();
    return spool_retry_at_;
  }
  spool_failed_ = false;
  absl::MutexLock lock(&mutex_);
  spooled_ = last;
  if (flushing) flushed_ = last;
  changed_.Changed();
  return absl::InfiniteFuture();
}

void ControlStreamImpl::AwaitWork(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  changed_.Await(mutex_, timeout,
                 [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return woken_; });
  woken_ = false;
}

v1::WorkerMessage ControlStreamImpl::Heartbeat() const {
  v1::WorkerMessage message;
  *message.mutable_heartbeat() = progress_;
  return message;
}

v1::WorkerMessage ControlStreamImpl::NextReport() {
  v1::WorkerMessage message;
  *message.mutable_report() = *outbox_.Next();
  return message;
}

}  // namespace muster::control
