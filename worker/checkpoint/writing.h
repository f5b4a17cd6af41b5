// The progress of a rank's writing: of a checkpoint, or of the file of an optimizer's state.
#ifndef MUSTER_WORKER_CHECKPOINT_WRITING_H_
#define MUSTER_WORKER_CHECKPOINT_WRITING_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/files/disk.h"

namespace muster::checkpoint {

// Threading: thread-safe. A rank writes one thing at a time.
class Writing {
 public:
  struct Now {
    int64_t command = 0;  // the command that requested the writing; 0: none
    uint64_t total = 0;   // bytes that this rank writes; 0: nothing is written now
    uint64_t written = 0;
    friend bool operator==(const Now&, const Now&) = default;
  };
  void Begin(int64_t command, uint64_t total);
  void Add(uint64_t bytes);
  void End();
  Now Read() const;

 private:
  mutable absl::Mutex mutex_;
  Now now_ ABSL_GUARDED_BY(mutex_);
};

// The real disk, which adds each written block to `writing`. `writing` outlives this object.
class CountingDisk : public files::Disk {
 public:
  explicit CountingDisk(Writing* writing) : writing_(writing) {}
  absl::Status Write(int fd, const void* data, size_t size, const std::string& path) override;

 private:
  Writing* const writing_;
};

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_WRITING_H_
