#include "common/files/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/disk.h"

namespace muster::files {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "open", path);
  struct stat info;
  if (fstat(fd, &info) != 0) {
    const int error = errno;
    close(fd);
    return ErrnoStatus(error, "stat", path);
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a regular file, found ",
                     S_ISDIR(info.st_mode) ? "a directory" : "another kind"));
  }
  const size_t size = static_cast<size_t>(info.st_size);
  void* mapping = nullptr;
  if (size > 0) {
    mapping = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (mapping == MAP_FAILED) {
      const int error = errno;
      close(fd);
      return ErrnoStatus(error, "map", path);
    }
  }
  close(fd);
  return MappedFile(path, static_cast<const uint8_t*>(mapping), size, info.st_dev, info.st_ino);
}

MappedFile::MappedFile(std::string path, const uint8_t* data, size_t size, uint64_t device,
                       uint64_t inode)
    : path_(std::move(path)), data_(data), size_(size), device_(device), inode_(inode) {}

absl::Status MappedFile::CheckNotShrunk() const {
  struct stat info;
  // A mapped file is unchanged if its name was removed or belongs to another file.
  if (stat(path_.c_str(), &info) != 0 || info.st_dev != device_ || info.st_ino != inode_ ||
      static_cast<size_t>(info.st_size) >= size_) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path_, ": shortened while in use: expected the ", size_,
                   " bytes it had when it was opened, found ", info.st_size));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      device_(other.device_),
      inode_(other.inode_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

void ExplainBusErrors() {
  struct sigaction action = {};
  action.sa_handler = [](int) {
    // The process may hold any lock here, so this code must not log or allocate memory.
    constexpr char kWhy[] =
        "SIGBUS: a file that is mapped into memory (training data, weights or a checkpoint) was "
        "shortened, or could "
        "not be read from its disk\n";
    const ssize_t written = write(STDERR_FILENO, kWhy, sizeof(kWhy) - 1);
    static_cast<void>(written);
  };
  // The same read is repeated after the handler, and ends the process.
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace muster::files
