// A file that takes up room for nothing, to be given up when the disk is full: what then makes room
// has to be written first.
#ifndef MUSTER_COORDINATOR_STORE_BALLAST_H_
#define MUSTER_COORDINATOR_STORE_BALLAST_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace muster::store {

class Ballast {
 public:
  static constexpr int64_t kBytes = 8 << 20;

  explicit Ballast(std::string path) : path_(std::move(path)) {}

  // Makes the file where it is not there whole. RESOURCE_EXHAUSTED: there is no room for it.
  absl::Status Restore();
  // Whether there was any.
  bool Release();
  // There is not even room for a small file beside it.
  bool DiskIsFull() const;

 private:
  const std::string path_;
};

}  // namespace muster::store

#endif  // MUSTER_COORDINATOR_STORE_BALLAST_H_
