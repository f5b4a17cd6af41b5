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

namespace {

bool HasName(int folder, const std::string& name) {
  struct stat own = {}, there = {};
  return fstat(folder, &own) == 0 && lstat(name.c_str(), &there) == 0 &&
         own.st_ino == there.st_ino && own.st_dev == there.st_dev;
}

// Makes, opens and locks the folder `temporary`. Another process may rename its folder of this name
// between two calls; the next attempt then makes a new folder.
absl::StatusOr<int> MakeAndLock(const std::string& path, const std::string& temporary) {
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (mkdir(temporary.c_str(), 0755) != 0 && errno != EEXIST) {
      return files::ErrnoStatus(errno, "create", temporary);
    }
    const int folder = open(temporary.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 && errno == ENOENT) continue;
    if (folder < 0) return files::ErrnoStatus(errno, "open", temporary);
    if (flock(folder, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      close(folder);
      if (error != EWOULDBLOCK) return files::ErrnoStatus(error, "lock", temporary);
      break;
    }
    if (HasName(folder, temporary)) return folder;
    close(folder);
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": another process is writing it (it has locked ", temporary, ")"));
}

}  // namespace

absl::StatusOr<NewFolder> NewFolder::Create(const std::string& path) {
  const std::string parent = files::ParentDirectory(path);
  const std::string temporary =
      files::JoinPath(parent, absl::StrCat(".", manifest::NameOfDirectory(path), ".muster.tmp"));
  RETURN_IF_ERROR(files::CreateDirectories(parent));
  ASSIGN_OR_RETURN(const int lock, MakeAndLock(path, temporary));
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
  // Another folder may have this name meanwhile.
  if (HasName(lock_, temporary_)) {
    std::error_code error;
    std::filesystem::remove_all(temporary_, error);
  }
  close(lock_);
}

}  // namespace muster::checkpoints
