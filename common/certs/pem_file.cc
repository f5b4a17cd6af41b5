#include "common/certs/pem_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/status/status.h"

namespace muster::certs {

absl::StatusOr<std::string> ReadPemFile(const std::string& path) {
  struct stat status = {};
  // Checked before the file is opened: the open of a FIFO would wait for a writer.
  if (stat(path.c_str(), &status) != 0) return files::ErrnoStatus(errno, "read", path);
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  if (status.st_size > static_cast<off_t>(kMaxPemBytes)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has ", status.st_size,
                                                   " bytes; certificates and keys have at most ",
                                                   kMaxPemBytes));
  }
  return files::ReadFile(path);
}

namespace {

absl::Status WriteAll(const std::string& path, const std::string& contents, mode_t mode) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return files::ErrnoStatus(errno, "create", path);
  files::Disk& disk = files::Disk::Real();
  absl::Status status = disk.Write(fd, contents.data(), contents.size(), path);
  if (status.ok()) status = disk.Sync(fd, path);
  if (close(fd) != 0 && status.ok()) status = files::ErrnoStatus(errno, "close", path);
  if (!status.ok()) unlink(path.c_str());
  return status;
}

}  // namespace

absl::Status CheckFree(const std::string& path, IfExists if_exists) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0) {
    return errno == ENOENT ? absl::OkStatus() : files::ErrnoStatus(errno, "look at", path);
  }
  if (!S_ISREG(status.st_mode)) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, " exists and is no regular file; it is never replaced"));
  }
  if (if_exists == IfExists::kReplace) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(path, " exists; --overwrite replaces it, or choose another place"));
}

absl::Status WriteNew(const std::string& path, const std::string& contents, mode_t mode,
                      IfExists if_exists) {
  RETURN_IF_ERROR(CheckFree(path, if_exists));
  const std::string temporary = path + ".tmp";
  unlink(temporary.c_str());
  RETURN_IF_ERROR(WriteAll(temporary, contents, mode));
  absl::Status status;
  if (if_exists == IfExists::kReplace) {
    status = files::Disk::Real().Rename(temporary, path);
  } else if (link(temporary.c_str(), path.c_str()) != 0) {
    // A file that somebody made meanwhile under this name stays.
    status = files::ErrnoStatus(errno, "create", path);
  }
  if (!status.ok() || if_exists == IfExists::kRefuse) unlink(temporary.c_str());
  RETURN_IF_ERROR(status);
  return files::Disk::Real().SyncDirectory(files::ParentDirectory(path));
}

}  // namespace muster::certs
