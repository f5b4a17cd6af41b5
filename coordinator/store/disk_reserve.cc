#include "coordinator/store/disk_reserve.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "common/files/disk.h"

namespace muster::store {
namespace {

// The least space that SQLite needs for its own files beside the database.
constexpr int64_t kSmall = 64 << 10;

// Makes a file of this size, or extends a shorter one to it.
absl::Status Allocate(const std::string& path, int64_t bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return files::ErrnoStatus(errno, "create", path);
  int error = posix_fallocate(fd, 0, bytes);
  if (error == 0 && ftruncate(fd, bytes) != 0) error = errno;
  // A part of the file would take up space and be of no use.
  if (error != 0) unlink(path.c_str());
  close(fd);
  return error == 0 ? absl::OkStatus() : files::ErrnoStatus(error, "allocate", path);
}

}  // namespace

absl::Status DiskReserve::Restore() { return Allocate(path_, kBytes); }

bool DiskReserve::Release() { return unlink(path_.c_str()) == 0; }

bool DiskReserve::DiskIsFull() const {
  const std::string probe = path_ + ".probe";
  const absl::Status made = Allocate(probe, kSmall);
  unlink(probe.c_str());
  return absl::IsResourceExhausted(made);
}

}  // namespace muster::store
