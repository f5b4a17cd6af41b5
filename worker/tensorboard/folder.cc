#include "worker/tensorboard/folder.h"

#include <fcntl.h>
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

std::optional<Place::Id> IdOf(const std::string& directory) {
  struct stat info = {};
  if (stat(directory.c_str(), &info) != 0) return std::nullopt;
  return Place::Id(info.st_dev, info.st_ino);
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

absl::StatusOr<Place> PlaceOf(const std::string& directory) {
  std::error_code error;
  const std::string path = std::filesystem::canonical(directory, error).string();
  if (error) return files::ErrnoStatus(error.value(), "find", directory);
  Place place;
  place.parent_path = files::ParentDirectory(path);
  const auto id = IdOf(path);
  const auto parent = IdOf(place.parent_path);
  if (!id.has_value() || !parent.has_value()) return files::ErrnoStatus(errno, "find", directory);
  place.directory = *id;
  place.parent = *parent;
  struct statx info = {};
  const bool told = statx(AT_FDCWD, path.c_str(), 0, 0, &info) == 0 &&
                    (info.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0;
  place.mounted = told ? (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0
                       : place.directory.first != place.parent.first;
  return place;
}

absl::Status Folder::Ensure(const std::string& newest) {
  const auto now = IdOf(directory_);
  const bool same = seen_.has_value() && now == seen_->directory;
  if (seen_.has_value() && !same && (newest.empty() || access(newest.c_str(), F_OK) != 0) &&
      (seen_->mounted || IdOf(seen_->parent_path) != seen_->parent)) {
    return absl::UnavailableError(
        absl::StrCat(directory_,
                     now.has_value() ? " is another folder now than the one in which this session "
                                       "began"
                                     : " does not exist any more",
                     "; is its file system mounted on this node?"));
  }
  RETURN_IF_ERROR(files::CreateDirectories(path_));
  ASSIGN_OR_RETURN(seen_, PlaceOf(directory_));
  return absl::OkStatus();
}

}  // namespace muster::tensorboard
