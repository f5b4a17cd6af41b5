#include "common/files/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>

#include "common/files/read_beginning.h"
#include "common/status/status.h"

namespace muster::files {
namespace {

absl::Status WriteNewFile(const std::string& path, const std::string& contents, Disk& disk) {
  unlink(path.c_str());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, "create", path);
  absl::Status status = disk.Write(fd, contents.data(), contents.size(), path);
  if (status.ok()) status = disk.Sync(fd, path);
  if (close(fd) != 0 && status.ok()) status = ErrnoStatus(errno, "close", path);
  return status;
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  return ReadBeginning(path, std::numeric_limits<size_t>::max());
}

absl::Status WriteAtomically(const std::string& path, const std::string& contents, Disk& disk) {
  const std::string temporary = path + ".tmp";
  absl::Status status = WriteNewFile(temporary, contents, disk);
  if (status.ok()) status = RenameDurably(temporary, path, disk);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

absl::Status RenameDurably(const std::string& from, const std::string& to, Disk& disk) {
  RETURN_IF_ERROR(disk.Rename(from, to));
  return disk.SyncDirectory(ParentDirectory(to));
}

absl::Status CreateDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return ErrnoStatus(error.value(), "make directory", path);
  return absl::OkStatus();
}

std::string ParentDirectory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string JoinPath(const std::string& directory, const std::string& name) {
  return (std::filesystem::path(directory) / name).string();
}

}  // namespace muster::files
