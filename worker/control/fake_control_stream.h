// A control stream without a coordinator, for tests. It keeps the reports, and returns values that
// a test has set. Several streams may share a meeting, as the ranks of one generation do.
#ifndef MUSTER_WORKER_CONTROL_FAKE_CONTROL_STREAM_H_
#define MUSTER_WORKER_CONTROL_FAKE_CONTROL_STREAM_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "worker/control/control_stream.h"

namespace muster::control {

// The address at which rank 0's store listens, after rank 0 has reported it. Thread-safe.
class FakeMeeting {
 public:
  void Tell(const v1::Rendezvous& where) {
    absl::MutexLock lock(&mutex_);
    where_ = where;
  }
  absl::StatusOr<v1::Rendezvous> Wait(absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    const auto told = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return where_.has_value(); };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&told), timeout)) {
      return absl::DeadlineExceededError("nobody said where to meet");
    }
    return *where_;
  }

 private:
  absl::Mutex mutex_;
  std::optional<v1::Rendezvous> where_ ABSL_GUARDED_BY(mutex_);
};

// Threading: one thread at a time.
class FakeControlStream : public ControlStream {
 public:
  FakeControlStream(v1::WorkerWelcome welcome, FakeMeeting* meeting)
      : welcome_(std::move(welcome)), meeting_(meeting) {}

  // The result of Flush, and the timeout of its last call.
  absl::Status flushed;
  std::optional<absl::Duration> flush_timeout;
  // The number of calls of Flush before the coordinator answers, and before it sends the notice.
  int answers_after = 0;
  int notice_after = 1 << 30;

  const std::vector<v1::WorkerReport>& reports() const { return reports_; }

  const v1::WorkerWelcome& welcome() const override { return welcome_; }
  absl::Status StillMine() const override { return absl::OkStatus(); }
  bool Away() const override { return false; }
  void Report(v1::WorkerReport report) override {
    if (report.has_rendezvous()) meeting_->Tell(report.rendezvous());
    reports_.push_back(std::move(report));
  }
  bool AwaitAcknowledged(absl::Duration) override { return true; }
  absl::Status Flush(absl::Duration timeout) override {
    flush_timeout = timeout;
    --notice_after;
    if (answers_after-- > 0) return absl::DeadlineExceededError("not acknowledged yet");
    return flushed;
  }
  void SetProgress(v1::WorkerHeartbeat) override {}
  absl::StatusOr<v1::Rendezvous> WaitForRendezvous(absl::Duration timeout) override {
    return meeting_->Wait(timeout);
  }
  bool WaitForExportGranted(const std::string&, absl::Duration) override { return true; }
  bool Preempted() const override { return notice_after <= 0; }
  uint64_t NewestCommand() const override { return 0; }
  v1::Command GetCommand(uint64_t) const override { return {}; }

 private:
  const v1::WorkerWelcome welcome_;
  FakeMeeting* const meeting_;
  std::vector<v1::WorkerReport> reports_;
};

}  // namespace muster::control

#endif  // MUSTER_WORKER_CONTROL_FAKE_CONTROL_STREAM_H_
