#include "worker/checkpoint/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace muster::checkpoint {

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path, uint64_t size,
                                              files::Disk& disk, mode_t mode) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return files::ErrnoStatus(errno, "create", path);
  OutputFile file(path, fd, disk);
  if (size == 0 || fallocate(fd, 0, 0, static_cast<off_t>(size)) == 0) return file;
  if (errno != EOPNOTSUPP) return files::ErrnoStatus(errno, "allocate space for", path);
  if (ftruncate(fd, static_cast<off_t>(size)) == 0) return file;
  return files::ErrnoStatus(errno, "resize", path);
}

absl::StatusOr<OutputFile> OutputFile::Open(const std::string& path, uint64_t size,
                                            files::Disk& disk) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return files::ErrnoStatus(errno, "open", path);
  OutputFile file(path, fd, disk);
  struct stat found = {};
  if (fstat(fd, &found) != 0) return files::ErrnoStatus(errno, "read", path);
  if (static_cast<uint64_t>(found.st_size) == size) return file;
  return absl::InternalError(
      absl::StrCat(path, ": expected ", size, " bytes, found ", found.st_size));
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), disk_(other.disk_) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status OutputFile::WriteAt(uint64_t offset, const void* data, size_t bytes) {
  if (lseek(fd_, static_cast<off_t>(offset), SEEK_SET) < 0) {
    return files::ErrnoStatus(errno, "seek in", path_);
  }
  return disk_->Write(fd_, data, bytes, path_);
}

absl::Status OutputFile::Sync() { return disk_->Sync(fd_, path_); }

}  // namespace muster::checkpoint
