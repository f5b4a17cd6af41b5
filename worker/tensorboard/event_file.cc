#include "worker/tensorboard/event_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/status.h"

namespace muster::tensorboard {
namespace {

// TensorBoard reads every file whose name contains "tfevents". A leftover is replaced.
constexpr char kTemporary[] = ".muster-events.tmp";

}  // namespace

absl::StatusOr<std::unique_ptr<EventFile>> EventFile::Create(const std::string& path,
                                                             const std::string& contents,
                                                             files::Disk& disk) {
  const std::string temporary = files::JoinPath(files::ParentDirectory(path), kTemporary);
  unlink(temporary.c_str());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return files::ErrnoStatus(errno, "create", temporary);
  auto file = absl::WrapUnique(new EventFile(path, fd, disk));
  absl::Status status = disk.Write(fd, contents.data(), contents.size(), temporary);
  file->size_ = contents.size();
  if (status.ok()) status = disk.Sync(fd, temporary);
  if (status.ok()) status = files::RenameDurably(temporary, path, disk);
  if (status.ok()) return file;
  unlink(temporary.c_str());
  return status;
}

EventFile::EventFile(std::string path, int fd, files::Disk& disk)
    : path_(std::move(path)), fd_(fd), disk_(disk) {}

EventFile::~EventFile() { close(fd_); }

absl::Status EventFile::CheckThere() const {
  struct stat named = {}, open = {};
  if (stat(path_.c_str(), &named) != 0) return files::ErrnoStatus(errno, "find", path_);
  if (fstat(fd_, &open) != 0) return files::ErrnoStatus(errno, "stat", path_);
  if (named.st_ino == open.st_ino && named.st_dev == open.st_dev) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(path_, " is another file now than the one that is open"));
}

absl::Status EventFile::Append(const std::string& bytes) {
  RETURN_IF_ERROR(CheckThere());
  const absl::Status status = disk_.Write(fd_, bytes.data(), bytes.size(), path_);
  if (status.ok()) {
    size_ += bytes.size();
  } else {
    // Otherwise a reader would have twice what the next file repeats without an earlier START. The
    // error of the write is told, whether or not there is one here.
    const int ignored = ftruncate(fd_, static_cast<off_t>(size_));
    static_cast<void>(ignored);
  }
  return status;
}

absl::Status EventFile::Sync() {
  RETURN_IF_ERROR(CheckThere());
  return disk_.Sync(fd_, path_);
}

}  // namespace muster::tensorboard
