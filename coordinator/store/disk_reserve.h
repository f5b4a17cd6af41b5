// The file `ballast`: 8 MiB of zeros. When the disk is full, the file is deleted, so that `muster
// delete` can still write.
#ifndef MUSTER_COORDINATOR_STORE_DISK_RESERVE_H_
#define MUSTER_COORDINATOR_STORE_DISK_RESERVE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace muster::store {

class DiskReserve {
 public:
  static constexpr int64_t kBytes = 8 << 20;

  explicit DiskReserve(std::string path) : path_(std::move(path)) {}

  // Makes the file, or completes a file that is too short. RESOURCE_EXHAUSTED if the disk has too
  // little space. After an error of the allocation, there is no file.
  absl::Status Restore();
  // Deletes the file. Returns whether it existed.
  bool Release();
  // Returns whether the disk has no space even for one more small file.
  bool DiskIsFull() const;

 private:
  const std::string path_;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_DISK_RESERVE_H_
