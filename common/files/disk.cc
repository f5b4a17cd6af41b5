#include "common/files/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/status/status.h"

namespace muster::files {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::StatusCode::kResourceExhausted;
    case EEXIST:
    case ENOTEMPTY:
      return absl::StatusCode::kAlreadyExists;
    default:
      return absl::StatusCode::kInternal;
  }
}

// Brings what was written to the disk block by block, so that a slow disk shows that it moves; only fsync makes it durable.
absl::Status SyncBlocks(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return absl::OkStatus();
  int error = 0;
  const auto sync = [&](size_t offset, size_t bytes, unsigned flags) {
    if (sync_file_range(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes), flags) == 0) return true;
    // A file system that cannot leaves all of it to fsync.
    if (errno == EIO || errno == ENOSPC || errno == EDQUOT) error = errno;
    return false;
  };
  const auto size = static_cast<size_t>(info.st_size);
  if (size <= activity::kBlockBytes || !sync(0, 0, SYNC_FILE_RANGE_WRITE)) {
    return error == 0 ? absl::OkStatus() : ErrnoStatus(error, "fsync", path);
  }
  activity::ByBlocks(size, [&](size_t offset, size_t bytes) {
    return sync(offset, bytes,
                SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  });
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, "fsync", path);
}

}  // namespace

absl::Status ErrnoStatus(int error, const std::string& action, const std::string& path) {
  return absl::Status(CodeOf(error), absl::StrCat(action, " ", path, ": ", strerror(error)));
}

Disk& Disk::Real() {
  static Disk& disk = *new Disk;
  return disk;
}

absl::Status Disk::Write(int fd, const void* data, size_t size, const std::string& path) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = write(fd, next, std::min(size, activity::kBlockBytes));
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "write", path);
    }
    activity::Moved();
    next += written;
    size -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status Disk::Sync(int fd, const std::string& path) {
  RETURN_IF_ERROR(SyncBlocks(fd, path));
  if (fsync(fd) != 0) return ErrnoStatus(errno, "fsync", path);
  return absl::OkStatus();
}

absl::Status Disk::Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename ", from, " to"), to);
  }
  return absl::OkStatus();
}

absl::Status Disk::SyncDirectory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  absl::Status status;
  if (fsync(fd) != 0) status = ErrnoStatus(errno, "fsync", path);
  close(fd);
  return status;
}

}  // namespace muster::files
