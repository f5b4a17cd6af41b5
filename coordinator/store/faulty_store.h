// A store for tests whose commits fail or hang on request.
#ifndef MUSTER_COORDINATOR_STORE_FAULTY_STORE_H_
#define MUSTER_COORDINATOR_STORE_FAULTY_STORE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/store/store.h"

namespace muster::store {

// A store that passes each call on to another store. Fail, Hang and commits() are thread-safe.
class FaultyStore : public Store {
 public:
  explicit FaultyStore(std::unique_ptr<Store> store) : store_(std::move(store)) {}

  // Lets each later commit return `fault` without storing its batch. OK: commits succeed.
  void Fail(const absl::Status& fault) {
    absl::MutexLock lock(&mutex_);
    fault_ = fault;
  }
  // Lets each later commit store its batch and return `fault`, as if the process were killed before
  // the answer. OK: commits succeed.
  void FailAfterwards(const absl::Status& fault) {
    absl::MutexLock lock(&mutex_);
    fault_afterwards_ = fault;
  }
  // Lets commits wait until Hang(false).
  void Hang(bool hangs) {
    absl::MutexLock lock(&mutex_);
    hangs_ = hangs;
  }
  // The number of commits that have begun.
  int commits() const { return commits_; }

  absl::Status Commit(const Batch& batch) override {
    ++commits_;
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(+[](bool* hangs) { return !*hangs; }, &hangs_));
    if (!fault_.ok()) return fault_;
    if (const absl::Status status = store_->Commit(batch); !status.ok()) return status;
    return fault_afterwards_;
  }
  bool ReleaseReserve() override { return store_->ReleaseReserve(); }
  bool RestoreReserve() override { return store_->RestoreReserve(); }
  bool OpenedShortOfRoom() const override { return store_->OpenedShortOfRoom(); }
  absl::StatusOr<std::string> Backup() override { return store_->Backup(); }
  absl::StatusOr<Image> Load() override { return store_->Load(); }
  absl::StatusOr<std::vector<MetricsRow>> ReadMetrics(MetricsOf of, const std::string& job_id,
                                                      uint64_t from_step, size_t limit) override {
    return store_->ReadMetrics(of, job_id, from_step, limit);
  }
  absl::StatusOr<std::vector<LogRow>> ReadLogs(const std::string& job_id, uint64_t after_sequence,
                                               std::optional<uint32_t> rank,
                                               size_t limit) override {
    return store_->ReadLogs(job_id, after_sequence, rank, limit);
  }

 private:
  const std::unique_ptr<Store> store_;
  std::atomic<int> commits_ = 0;
  absl::Mutex mutex_;
  absl::Status fault_ ABSL_GUARDED_BY(mutex_);
  absl::Status fault_afterwards_ ABSL_GUARDED_BY(mutex_);
  bool hangs_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_FAULTY_STORE_H_
