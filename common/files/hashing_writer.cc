#include "common/files/hashing_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "common/status/status.h"

namespace muster::files {

absl::StatusOr<std::unique_ptr<HashingWriter>> HashingWriter::Create(const std::string& path,
                                                                     Disk& disk) {
  unlink(path.c_str());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, "create", path);
  return std::unique_ptr<HashingWriter>(new HashingWriter(path, fd, disk));
}

HashingWriter::HashingWriter(std::string path, int fd, Disk& disk)
    : path_(std::move(path)), fd_(fd), disk_(disk) {}

HashingWriter::~HashingWriter() {
  if (fd_ >= 0) close(fd_);
  if (!finished_) unlink(path_.c_str());
}

absl::Status HashingWriter::Append(const void* data, size_t size) {
  hasher_.Update(data, size);
  blocks_.Update(data, size);
  size_ += size;
  return disk_.Write(fd_, data, size, path_);
}

absl::StatusOr<FileDigest> HashingWriter::Finish() {
  absl::Status status = disk_.Sync(fd_, path_);
  if (close(fd_) != 0 && status.ok()) status = ErrnoStatus(errno, "close", path_);
  fd_ = -1;
  if (!status.ok()) {
    unlink(path_.c_str());
    return status;
  }
  finished_ = true;
  return FileDigest{size_, hasher_.Hex(), blocks_.Finish()};
}

}  // namespace muster::files
