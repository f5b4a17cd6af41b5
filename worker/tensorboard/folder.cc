#include "worker/tensorboard/folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/exports/folder.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/status/status.h"

namespace muster::tensorboard {
namespace {

bool StaysSo(int error) {
  return error == EACCES || error == EPERM || error == EROFS || error == ENAMETOOLONG ||
         error == ELOOP;
}

absl::Status Problem(int error, const std::string& path) {
  const absl::Status status = files::ErrnoStatus(error, "write event files in", path);
  if (!StaysSo(error)) return status;
  return absl::FailedPreconditionError(
      absl::StrCat(Message(status), "; expected a folder that the workers' user may write; choose ",
                   "another folder, or allow it"));
}

}  // namespace

std::string FolderOf(const std::string& directory, const std::string& job) {
  return files::JoinPath(directory, job);
}

absl::Status Prepare(const std::string& directory, const std::string& job) {
  const std::string path = FolderOf(directory, job);
  RETURN_IF_ERROR(exports::CheckFolder(path));
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return Problem(error.value(), path);
  if (access(path.c_str(), W_OK | X_OK) != 0) return Problem(errno, path);
  return absl::OkStatus();
}

absl::Status Folder::Ensure(const std::string& newest) {
  struct stat info = {};
  const bool there = stat(directory_.c_str(), &info) == 0;
  const bool same = there && seen_ == std::pair(info.st_dev, info.st_ino);
  if (seen_.has_value() && !same && (newest.empty() || access(newest.c_str(), F_OK) != 0)) {
    return absl::UnavailableError(
        absl::StrCat(directory_,
                     there ? " is another folder now than the one in which this session began"
                           : " does not exist any more",
                     "; is its file system mounted on this node?"));
  }
  RETURN_IF_ERROR(files::CreateDirectories(path_));
  if (stat(directory_.c_str(), &info) != 0) return files::ErrnoStatus(errno, "find", directory_);
  seen_ = std::pair(info.st_dev, info.st_ino);
  return absl::OkStatus();
}

}  // namespace muster::tensorboard
