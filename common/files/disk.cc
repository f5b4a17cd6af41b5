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

// Starts the transfer of a block that was just written, and waits for the transfer of an earlier
// block. So the disk is never far behind the bytes that the process counts as written, and a later
// fsync is short. (An agent sees progress by this count, write_bytes in /proc/PID/io.) If the file
// system does not support this, fsync does all of it.
absl::Status WriteBehind(int fd, const std::string& path) {
  constexpr off_t kBlock = activity::kBlockBytes;
  constexpr off_t kAhead = 8 * kBlock;
  const off_t end = lseek(fd, 0, SEEK_CUR);
  if (end < kBlock || sync_file_range(fd, end - kBlock, kBlock, SYNC_FILE_RANGE_WRITE) != 0)
    return absl::OkStatus();
  if (end < kBlock + kAhead) return absl::OkStatus();
  const int done = sync_file_range(
      fd, end - kBlock - kAhead, kBlock,
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  const bool failed = done != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT);
  return failed ? ErrnoStatus(errno, "write", path) : absl::OkStatus();
}

// Transfers the written bytes to the disk block by block, so that progress is visible on a slow
// disk. Only fsync makes the data durable.
absl::Status SyncBlocks(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return absl::OkStatus();
  int error = 0;
  const auto sync = [&](size_t offset, size_t bytes, unsigned flags) {
    if (sync_file_range(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes), flags) == 0)
      return true;
    // A file system without such transfers leaves all of them to fsync.
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
    if (static_cast<size_t>(written) == activity::kBlockBytes)
      RETURN_IF_ERROR(WriteBehind(fd, path));
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

absl::Status Disk::Exchange(const std::string& a, const std::string& b) {
  if (renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) {
    return absl::OkStatus();
  }
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
    return absl::UnimplementedError(absl::StrCat(
        "the file system of ", b, " cannot exchange the names of two files or folders"));
  }
  return ErrnoStatus(errno, absl::StrCat("exchange ", a, " and"), b);
}

absl::Status Disk::SyncDirectory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  absl::Status status;
  if (fsync(fd) != 0) status = ErrnoStatus(errno, "fsync", path);
  close(fd);
  return status;
}

absl::Status Disk::DropPages(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  const int error = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, "drop the cached pages of", path);
}

}  // namespace muster::files
