// The construction and destruction of the stream, the calls of its owner, and its writer. The
// writer sends heartbeats and reports, and writes reports to the agent's disk while the coordinator
// cannot be reached.
#include "worker/control/control_stream.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/proto_time.h"
#include "common/rpc/rpc.h"
#include "common/status/status.h"
#include "common/steady/now.h"
#include "worker/control/control_stream_impl.h"

namespace muster::control {
namespace {

// The longest pause between two probes of the address before the first welcome, which tells the
// length of a lease.
constexpr absl::Duration kFirstProbes = absl::Seconds(1);
// The time within which a working coordinator acknowledges a report.
constexpr absl::Duration kAnswersWithin = absl::Milliseconds(200);

}  // namespace

absl::StatusOr<std::unique_ptr<ControlStream>> ControlStream::Connect(
    ControlStreamOptions options) {
  if (!options.on_lease_over) options.on_lease_over = options.on_fatal;
  auto stream = std::make_unique<ControlStreamImpl>(std::move(options));
  RETURN_IF_ERROR(stream->Start());
  return stream;
}

ControlStreamImpl::ControlStreamImpl(ControlStreamOptions options)
    : options_(std::move(options)),
      connection_{.channel = OpenChannel(options_.coordinator, {}, options_.credentials)},
      spool_(options_.spool, options_.worker),
      keeper_({.on_over = options_.on_lease_over, .on_silent = [this] { Reconnect(); }}),
      probe_(options_.coordinator, [this](absl::Time begun) { Refused(begun); }) {}

ControlStreamImpl::~ControlStreamImpl() {
  {
    absl::MutexLock lock(&mutex_);
    call_.closing = true;
    if (call_.context != nullptr) call_.context->TryCancel();
  }
  Wake();
  if (reader_.joinable()) reader_.join();
  if (writer_.joinable()) writer_.join();
}

absl::Status ControlStreamImpl::Start() {
  probe_.Begin(std::min(kFirstProbes, options_.connect_timeout / kProbesPerLease));
  reader_ = std::thread([this] { ReadLoop(); });
  const absl::Time begun = SteadyNow();
  absl::MutexLock lock(&mutex_);
  const auto decided = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return received_.complete() || started_.has_value();
  };
  const auto until = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::min(begun + options_.down_timeout,
                    std::max(begun, call_.refused) + options_.connect_timeout);
  };
  const auto& agents_end = options_.agents_lease_end;
  absl::Time lease_end = agents_end ? agents_end() : absl::InfiniteFuture();
  while (!changed_.Await(mutex_, std::min(until(), lease_end) - SteadyNow(), decided)) {
    if (agents_end) lease_end = agents_end();
    if (SteadyNow() >= lease_end) {
      return absl::AbortedError(
          "the lease of this worker's agent is over, and the coordinator has not welcomed it");
    }
    if (SteadyNow() < until()) continue;
    return absl::UnavailableError(absl::StrCat("coordinator ", options_.coordinator,
                                               " did not welcome this worker within ",
                                               absl::FormatDuration(options_.connect_timeout)));
  }
  if (started_.has_value()) return *started_;
  started_ = absl::OkStatus();
  writer_ = std::thread([this] { WriteLoop(); });
  return absl::OkStatus();
}

absl::Status ControlStreamImpl::StillMine() const { return keeper_.StillMine(); }

bool ControlStreamImpl::Away() const {
  absl::MutexLock lock(&mutex_);
  return !call_.attached;
}

void ControlStreamImpl::Report(v1::WorkerReport report) {
  {
    absl::MutexLock lock(&mutex_);
    outbox_.Add(std::move(report));
  }
  Wake();
}

bool ControlStreamImpl::AwaitAcknowledged(absl::Duration timeout) {
  const absl::Time end = SteadyNow() + timeout;
  uint64_t last = 0;
  const auto settled = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return outbox_.IsSettled(last);
  };
  {
    absl::MutexLock lock(&mutex_);
    last = outbox_.last();
    if (settled()) return true;
    if (call_.attached && changed_.Await(mutex_, std::min(timeout, kAnswersWithin), settled))
      return true;
    // The stream is dead or slow, so the reports go to the spool.
    outbox_.Settle();
    if (!spool_.enabled()) return false;
  }
  Wake();
  absl::MutexLock lock(&mutex_);
  changed_.Await(mutex_, end - SteadyNow(), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return settled() || outbox_.CannotSettle(last);
  });
  return settled();
}

absl::Status ControlStreamImpl::Flush(absl::Duration timeout) {
  {
    absl::MutexLock lock(&mutex_);
    outbox_.Flush();
  }
  Wake();
  absl::MutexLock lock(&mutex_);
  const auto durable = [this]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return outbox_.IsDurable(); };
  if (changed_.Await(mutex_, timeout, durable)) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("coordinator ", options_.coordinator,
                                                  " did not acknowledge all reports within ",
                                                  absl::FormatDuration(timeout)));
}

void ControlStreamImpl::SetProgress(v1::WorkerHeartbeat progress) {
  absl::MutexLock lock(&mutex_);
  progress_ = std::move(progress);
}

absl::StatusOr<v1::Rendezvous> ControlStreamImpl::WaitForRendezvous(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto known = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return received_.rendezvous.has_value();
  };
  if (changed_.Await(mutex_, timeout, known)) return *received_.rendezvous;
  return absl::DeadlineExceededError(absl::StrCat("rank 0 did not say within ",
                                                  absl::FormatDuration(timeout),
                                                  " where its rendezvous store listens"));
}

bool ControlStreamImpl::WaitForExportGranted(const std::string& path, absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  return changed_.Await(mutex_, timeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return received_.granted_export == path;
  });
}

bool ControlStreamImpl::Preempted() const {
  absl::MutexLock lock(&mutex_);
  return received_.preempted;
}

uint64_t ControlStreamImpl::NewestCommand() const {
  absl::MutexLock lock(&mutex_);
  return received_.commands.size();
}

v1::Command ControlStreamImpl::GetCommand(uint64_t number) const {
  absl::MutexLock lock(&mutex_);
  return received_.commands[number - 1];
}

void ControlStreamImpl::Wake() {
  {
    absl::MutexLock lock(&mutex_);
    woken_ = true;
  }
  changed_.Changed();
}

void ControlStreamImpl::WriteLoop() {
  const absl::Duration interval = FromProto(welcome().heartbeat_interval());
  absl::Time next_heartbeat = SteadyNow() + interval;
  while (true) {
    v1::WorkerMessage message;
    Stream* stream = nullptr;
    bool more = false;
    {
      absl::MutexLock lock(&mutex_);
      if (call_.closing) return;
      const absl::Time now = SteadyNow();
      // Heartbeats come first, so that an endless flow of reports does not delay them.
      const bool heartbeat_due = now >= next_heartbeat;
      if (heartbeat_due) next_heartbeat = now + interval;
      more = call_.stream != nullptr && (heartbeat_due || outbox_.HasNext());
      if (more) {
        if (heartbeat_due) {
          *message.mutable_heartbeat() = progress_;
        } else {
          *message.mutable_report() = *outbox_.Next();
        }
        stream = call_.stream;
        call_.writing = true;
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
    call_.writing = false;
    // The stream is broken: the reader notices this, too, and opens another stream.
    if (!written && call_.stream == stream) call_.stream = nullptr;
  }
}

absl::Time ControlStreamImpl::Spool(absl::Duration timeout) {
  if (!spool_.enabled()) return absl::InfiniteFuture();
  SpoolWork work;
  {
    absl::MutexLock lock(&mutex_);
    work = outbox_.NextWork(SteadyNow(), call_.attached, timeout, spool_.through(), spool_.limit());
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
