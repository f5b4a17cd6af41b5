// The stream's writer: sends heartbeats and reports, and writes reports to the agent's disk while
// the coordinator cannot be reached.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/proto_time.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "worker/control/control_stream_impl.h"

namespace muster::control {

void ControlStreamImpl::WriteLoop() {
  const absl::Duration interval = FromProto(welcome().heartbeat_interval());
  absl::Time next_heartbeat = SteadyNow() + interval;
  while (true) {
    v1::WorkerMessage message;
    Stream* stream = nullptr;
    bool more = false;
    {
      absl::MutexLock lock(&mutex_);
      if (line_.closing) return;
      const absl::Time now = SteadyNow();
      // Heartbeats come first, so that they are sent even if the reports never end.
      const bool heartbeat_due = now >= next_heartbeat;
      if (heartbeat_due) next_heartbeat = now + interval;
      more = line_.stream != nullptr && (heartbeat_due || outbox_.HasNext());
      if (more) {
        if (heartbeat_due) {
          *message.mutable_heartbeat() = progress_;
        } else {
          *message.mutable_report() = *outbox_.Next();
        }
        stream = line_.stream;
        line_.writing = true;
      }
    }
    if (!more) {
      const absl::Time next_spool = Spool(interval);
      AwaitWork(std::min(next_heartbeat, next_spool) - SteadyNow());
      continue;
    }
    if (message.has_heartbeat()) {
      if (options_.measure) options_.measure(message.mutable_heartbeat());
      message.mutable_heartbeat()->set_sequence(keeper_.Beat());
    }
    const bool written = stream->Write(message);
    absl::MutexLock lock(&mutex_);
    line_.writing = false;
    // A broken stream: the reader sees it too and opens another.
    if (!written && line_.stream == stream) line_.stream = nullptr;
  }
}

absl::Time ControlStreamImpl::Spool(absl::Duration timeout) {
  if (!spool_.enabled()) return absl::InfiniteFuture();
  SpoolWork work;
  {
    absl::MutexLock lock(&mutex_);
    work = outbox_.NextWork(SteadyNow(), line_.attached, timeout, spool_.through(), spool_.limit());
    changed_.Changed();
  }
  if (work.kind == SpoolWork::Kind::kRemove) spool_.Remove();
  if (work.kind != SpoolWork::Kind::kWrite) return work.again;
  if (work.replace) spool_.Reset();
  absl::Status status;
  if (!work.reports.empty()) status = spool_.Add(work.reports, work.last);
  if (status.ok() && work.sync) status = spool_.Sync();
  if (!status.ok() && work.was_well) spdlog::error("{}", Message(status));
  absl::MutexLock lock(&mutex_);
  outbox_.Written(work, status.ok(), SteadyNow());
  changed_.Changed();
  return status.ok() ? absl::InfiniteFuture() : SteadyNow();
}

void ControlStreamImpl::AwaitWork(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  changed_.Await(mutex_, timeout,
                 [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return woken_; });
  woken_ = false;
}

}  // namespace muster::control
