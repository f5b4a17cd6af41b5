#include "common/lease/lease_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "common/files/disk.h"

namespace muster {

LeaseFile::~LeaseFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status LeaseFile::Open(const std::string& path) {
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd_ < 0) return files::ErrnoStatus(errno, "create", path);
  path_ = path;
  Write(absl::InfiniteFuture());
  return absl::OkStatus();
}

void LeaseFile::Write(absl::Time end) {
  if (fd_ < 0 || end == written_) return;
  written_ = end;
  // Infinite becomes the largest number.
  const int64_t nanoseconds = absl::ToUnixNanos(end);
  (void)!pwrite(fd_, &nanoseconds, sizeof(nanoseconds), 0);
}

absl::Time LeaseFile::Read(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::InfiniteFuture();
  int64_t nanoseconds = INT64_MAX;
  const ssize_t size = pread(fd, &nanoseconds, sizeof(nanoseconds), 0);
  close(fd);
  const bool known = size == sizeof(nanoseconds) && nanoseconds != INT64_MAX;
  return known ? absl::FromUnixNanos(nanoseconds) : absl::InfiniteFuture();
}

}  // namespace muster
