// Reads the next batch of a data set in a thread of its own, while the model is trained on the
// current one.
#ifndef MUSTER_WORKER_TRAIN_DATA_READ_AHEAD_H_
#define MUSTER_WORKER_TRAIN_DATA_READ_AHEAD_H_

#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/activity/activity.h"
#include "worker/data/dataset.h"

namespace muster::train {

// At most one batch is held that was not asked for yet. The data set is never read by two threads
// at a time. What Read returns does not depend on Begin. What is read counts as progress of the
// thread that made this object (activity.h). Threading: one thread calls the methods.
class ReadAhead {
 public:
  // The data set must outlive this object. device: where the batches are needed. ignored:
  // InputSpec's; targets are counted where they are on the CPU.
  explicit ReadAhead(const data::Dataset* dataset, c10::Device device = c10::kCPU,
                     std::optional<int64_t> ignored = std::nullopt);
  // Waits for the batch that is being read.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Starts to read these samples, for the next call of Read. Waits for the batch that is being
  // read, and drops it. Without samples, nothing is read.
  void Begin(std::vector<int64_t> samples);

  // As Dataset::Read, also its errors and exceptions, but on the device. Reads the samples itself
  // if they are not those of Begin. The copy to the device is from pinned memory, so the host does
  // not wait for it.
  absl::StatusOr<data::Batch> Read(const std::vector<int64_t>& samples);

  // As Dataset::Blank, on the device.
  data::Batch Blank(int64_t samples) const;

 private:
  enum class State { kIdle, kAsked, kRead, kClosing };

  void Loop(activity::Activity* activity);
  // The batch with the number of targets that count, in memory from which copies to the device do
  // not hold the host up.
  data::Batch Prepared(data::Batch batch) const;
  bool Settled() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return state_ != State::kAsked; }

  const data::Dataset* const dataset_;
  const c10::Device device_;
  const std::optional<int64_t> ignored_;
  absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kIdle;
  std::vector<int64_t> samples_ ABSL_GUARDED_BY(mutex_);
  // Of samples_; absent if reading them has thrown an exception.
  std::optional<absl::StatusOr<data::Batch>> batch_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_DATA_READ_AHEAD_H_
