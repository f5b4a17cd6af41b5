// Reads the next batch of a data set in a separate thread, while the model is trained.
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

// Holds at most one batch that Read has not returned. Two threads never read the data set at the
// same time. The result of Read does not depend on Begin. Each read counts as progress of the
// thread that made this object (activity.h). Threading: one thread calls the methods.
class ReadAhead {
 public:
  // The data set must outlive this object. device: the place of the returned batches. ignored:
  // InputSpec::ignored; targets are counted on the CPU.
  explicit ReadAhead(const data::Dataset* dataset, c10::Device device = c10::kCPU,
                     std::optional<int64_t> ignored = std::nullopt);
  // Waits until the current read has ended.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Starts to read `samples` for the next call of Read. First waits until the current read has
  // ended, and drops its batch. Empty `samples`: nothing is read.
  void Begin(std::vector<int64_t> samples);

  // Returns what Dataset::Read returns or throws, with the batch on the device. If Begin had other
  // samples, reads `samples` now. The host does not wait for the copy to the device, which is from
  // pinned memory.
  absl::StatusOr<data::Batch> Read(const std::vector<int64_t>& samples);

  // Returns Dataset::Blank on the device.
  data::Batch Blank(int64_t samples) const;

 private:
  enum class State { kIdle, kAsked, kRead, kClosing };

  void Loop(activity::Activity* activity);
  // Returns the batch with the number of targets that count. The batch is in pinned memory, so that
  // the host does not wait for copies to the device.
  data::Batch Prepared(data::Batch batch) const;
  bool Settled() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return state_ != State::kAsked; }

  const data::Dataset* const dataset_;
  const c10::Device device_;
  const std::optional<int64_t> ignored_;
  absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kIdle;
  std::vector<int64_t> samples_ ABSL_GUARDED_BY(mutex_);
  // The batch of samples_; absent if its read threw an exception.
  std::optional<absl::StatusOr<data::Batch>> batch_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_DATA_READ_AHEAD_H_
