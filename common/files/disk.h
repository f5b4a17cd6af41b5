// The few calls that make files durable, or make a read come from the disk, as an interface. Tests
// derive from Disk and make a call fail, or simulate a kill of the process between two calls.
#ifndef MUSTER_COMMON_FILES_DISK_H_
#define MUSTER_COMMON_FILES_DISK_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace muster::files {

// Threading: the real disk is stateless. Errors name the path and the errno text; ENOENT gives
// NOT_FOUND, EACCES PERMISSION_DENIED, ENOSPC RESOURCE_EXHAUSTED, EEXIST/ENOTEMPTY ALREADY_EXISTS,
// the rest INTERNAL.
class Disk {
 public:
  virtual ~Disk() = default;

  // The process-wide real disk.
  static Disk& Real();

  // Writes all bytes.
  virtual absl::Status Write(int fd, const void* data, size_t size, const std::string& path);
  // Calls fsync. After a failure the file must not be used any more: the kernel may have dropped
  // its pages.
  virtual absl::Status Sync(int fd, const std::string& path);
  virtual absl::Status Rename(const std::string& from, const std::string& to);
  // Exchanges the names of two files or directories in one step. UNIMPLEMENTED: the file system
  // cannot exchange names.
  virtual absl::Status Exchange(const std::string& a, const std::string& b);
  // Calls fsync for a directory, which makes the names in it durable.
  virtual absl::Status SyncDirectory(const std::string& path);
  // Asks the kernel to drop a file's pages from memory, so that the next read comes from the disk.
  // The kernel keeps mapped pages and pages that are not written yet; a file system in memory keeps
  // all pages.
  virtual absl::Status DropPages(const std::string& path);
};

// "<action> <path>: <errno text>" with a code as listed above.
absl::Status ErrnoStatus(int error, const std::string& action, const std::string& path);

}  // namespace muster::files

#endif  // MUSTER_COMMON_FILES_DISK_H_
