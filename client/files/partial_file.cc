#include "client/files/partial_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/status/status.h"

namespace muster::client {

StagedFile::StagedFile(std::string path) : path_(std::move(path)) {}

StagedFile::~StagedFile() {
  std::error_code ignored;
  if (durable_) std::filesystem::remove(temporary(), ignored);
}

absl::StatusOr<std::unique_ptr<StagedFile>> StagedFile::Create(const std::string& path) {
  std::error_code error;
  const auto found = std::filesystem::symlink_status(path, error).type();
  if (found != std::filesystem::file_type::not_found &&
      found != std::filesystem::file_type::regular) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is no regular file, and is not replaced; give another name"));
  }
  std::unique_ptr<StagedFile> file(new StagedFile(path));
  ASSIGN_OR_RETURN(file->writer_, files::HashingWriter::Create(file->temporary()));
  return file;
}

absl::Status StagedFile::MakeDurable() {
  RETURN_IF_ERROR(writer_->Finish().status());
  durable_ = true;
  return absl::OkStatus();
}

absl::Status StagedFile::Publish() {
  RETURN_IF_ERROR(files::RenameDurably(temporary(), path_));
  durable_ = false;
  return absl::OkStatus();
}

namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

// Renames a file, without replacing another file.
absl::Status RenameToFree(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
    return absl::OkStatus();
  }
  if (errno == EINVAL || errno == ENOSYS) {
    // The file system does not support such a rename. A new link does not replace a file, either.
    if (link(from.c_str(), to.c_str()) == 0) {
      if (unlink(from.c_str()) == 0) return absl::OkStatus();
      return files::ErrnoStatus(errno, "remove", from);
    }
  }
  return files::ErrnoStatus(errno, "give its name to", to);
}

// Returns whether the name still belongs to the open file.
bool Names(const std::string& path, int fd) {
  struct stat named = {}, open = {};
  return lstat(path.c_str(), &named) == 0 && fstat(fd, &open) == 0 && named.st_ino == open.st_ino &&
         named.st_dev == open.st_dev && S_ISREG(open.st_mode);
}

}  // namespace

absl::Status CheckNewFile(const std::string& path, Existing existing) {
  struct stat found = {};
  const std::string folder = files::ParentDirectory(path);
  if (stat(folder.c_str(), &found) != 0) return files::ErrnoStatus(errno, "look at", folder);
  if (!S_ISDIR(found.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(folder, " is no folder"));
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return files::ErrnoStatus(errno, "write to", folder);
  }
  if (lstat(path.c_str(), &found) != 0) {
    return errno == ENOENT ? absl::OkStatus() : files::ErrnoStatus(errno, "look at", path);
  }
  if (!S_ISREG(found.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is no regular file"));
  }
  if (existing == Existing::kReplace) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(path, ": there is such a file; give another name, or --overwrite"));
}

PartialFile::PartialFile(std::string path, std::string part, int fd)
    : path_(std::move(path)), part_(std::move(part)), fd_(fd) {}

PartialFile::~PartialFile() { close(fd_); }

absl::StatusOr<std::unique_ptr<PartialFile>> PartialFile::Open(const std::string& path,
                                                               const std::string& tag) {
  const std::string part = files::JoinPath(
      files::ParentDirectory(path),
      absl::StrCat(".", std::filesystem::path(path).filename().string(), ".", tag, ".part"));
  // Another process that finishes at this moment may rename the file before or after the lock.
  constexpr int kAttempts = 10;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int fd = open(part.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return files::ErrnoStatus(errno, "create", part);
    std::unique_ptr<PartialFile> file(new PartialFile(path, part, fd));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) break;
    if (!Names(part, fd)) continue;
    RETURN_IF_ERROR(file->ReadWhatIsThere());
    return file;
  }
  return absl::FailedPreconditionError(
      absl::StrCat(part, ": another process receives this file; wait for it"));
}

absl::Status PartialFile::ReadWhatIsThere() {
  std::vector<char> block(kReadBytes);
  while (true) {
    const ssize_t got = pread(fd_, block.data(), block.size(), static_cast<off_t>(bytes_));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return files::ErrnoStatus(errno, "read", part_);
    if (got == 0) return absl::OkStatus();
    hasher_.Update(block.data(), static_cast<size_t>(got));
    bytes_ += static_cast<uint64_t>(got);
  }
}

absl::Status PartialFile::Append(const std::string& data) {
  RETURN_IF_ERROR(files::Disk::Real().Write(fd_, data.data(), data.size(), part_));
  hasher_.Update(data.data(), data.size());
  bytes_ += data.size();
  return absl::OkStatus();
}

absl::Status PartialFile::Restart() {
  if (ftruncate(fd_, 0) != 0) return files::ErrnoStatus(errno, "shorten", part_);
  hasher_.Reset();
  bytes_ = 0;
  return absl::OkStatus();
}

absl::Status PartialFile::Publish(Existing existing) {
  files::Disk& disk = files::Disk::Real();
  RETURN_IF_ERROR(disk.Sync(fd_, part_));
  RETURN_IF_ERROR(CheckNewFile(path_, existing));
  if (existing == Existing::kReplace) {
    RETURN_IF_ERROR(disk.Rename(part_, path_));
  } else {
    RETURN_IF_ERROR(RenameToFree(part_, path_));
  }
  return disk.SyncDirectory(files::ParentDirectory(path_));
}

void PartialFile::Discard() {
  if (Names(part_, fd_)) unlink(part_.c_str());
}

}  // namespace muster::client
