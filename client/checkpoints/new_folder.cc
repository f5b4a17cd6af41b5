#include "client/checkpoints/new_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/manifest/name.h"
#include "common/status/status.h"

namespace muster::checkpoints {

absl::StatusOr<NewFolder> NewFolder::Create(const std::string& path) {
  const std::string parent = files::ParentDirectory(path);
  const std::string temporary =
      files::JoinPath(parent, absl::StrCat(".", manifest::NameOfDirectory(path), ".muster.tmp"));
  RETURN_IF_ERROR(files::CreateDirectories(parent));
  if (mkdir(temporary.c_str(), 0755) != 0 && errno != EEXIST) {
    return files::ErrnoStatus(errno, "create", temporary);
  }
  const int lock = open(temporary.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0) return files::ErrnoStatus(errno, "open", temporary);
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    close(lock);
    if (error != EWOULDBLOCK) return files::ErrnoStatus(error, "lock", temporary);
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": another process is writing it (it has locked ", temporary, ")"));
  }
  NewFolder folder(temporary, lock);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(temporary, error)) {
    std::filesystem::remove_all(entry.path(), error);
  }
  if (error) return files::ErrnoStatus(error.value(), "empty", temporary);
  return folder;
}

NewFolder::NewFolder(NewFolder&& other) noexcept
    : temporary_(std::move(other.temporary_)), lock_(std::exchange(other.lock_, -1)) {}

NewFolder::~NewFolder() {
  if (lock_ < 0) return;
  // Another folder may have the name by now.
  struct stat own = {}, there = {};
  if (fstat(lock_, &own) == 0 && lstat(temporary_.c_str(), &there) == 0 &&
      own.st_ino == there.st_ino && own.st_dev == there.st_dev) {
    std::error_code error;
    std::filesystem::remove_all(temporary_, error);
  }
  close(lock_);
}

}  // namespace muster::checkpoints
