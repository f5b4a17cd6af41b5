#include "worker/checkpoint/writing.h"

#include <algorithm>

#include "common/activity/activity.h"
#include "common/status/status.h"

namespace muster::checkpoint {

void Writing::Begin(int64_t command, uint64_t total) {
  absl::MutexLock lock(&mutex_);
  now_ = {.command = command, .total = total};
}

void Writing::Add(uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  // The headers of files are not in the total.
  now_.written = std::min(now_.total, now_.written + bytes);
}

void Writing::End() {
  absl::MutexLock lock(&mutex_);
  now_ = {};
}

Writing::Now Writing::Read() const {
  absl::MutexLock lock(&mutex_);
  return now_;
}

absl::Status CountingDisk::Write(int fd, const void* data, size_t size, const std::string& path) {
  for (size_t begin = 0; begin < size; begin += activity::kBlockBytes) {
    const size_t bytes = std::min(activity::kBlockBytes, size - begin);
    RETURN_IF_ERROR(Disk::Write(fd, static_cast<const char*>(data) + begin, bytes, path));
    writing_->Add(bytes);
  }
  return absl::OkStatus();
}

}  // namespace muster::checkpoint
