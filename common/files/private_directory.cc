#include "common/files/private_directory.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/status/status.h"

namespace muster::files {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

bool IsOwn(const std::string& name, const std::vector<std::string>& own) {
  return std::any_of(own.begin(), own.end(), [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

struct Contents {
  bool empty = true;
  std::vector<std::string> own;  // paths of regular files
};

absl::StatusOr<Contents> ContentsOf(const std::string& path, const std::vector<std::string>& own) {
  Contents contents;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    contents.empty = false;
    std::error_code ignored;  // the file may be removed at this moment
    const bool file = it->symlink_status(ignored).type() == fs::file_type::regular;
    if (file && IsOwn(it->path().filename().string(), own)) contents.own.push_back(it->path());
  }
  if (error) return ErrnoStatus(error.value(), "list", path);
  return contents;
}

absl::Status Narrow(const std::string& path, mode_t mode) {
  if (chmod(path.c_str(), mode) == 0 || errno == ENOENT) return absl::OkStatus();
  return ErrnoStatus(errno, "set the permissions of", path);
}

}  // namespace

absl::Status MakePrivateDirectory(const std::string& path, const std::vector<std::string>& own) {
  if (const std::string parent = ParentDirectory(path); parent != path) {
    RETURN_IF_ERROR(CreateDirectories(parent));
  }
  if (mkdir(path.c_str(), 0700) == 0) return Narrow(path, 0700);  // the umask may take rights away
  if (errno != EEXIST) return ErrnoStatus(errno, "make directory", path);
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) return ErrnoStatus(errno, "look at", path);
  if (!S_ISDIR(found.st_mode)) return ErrnoStatus(ENOTDIR, "use", path);
  if (found.st_uid != geteuid()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": the directory belongs to the user ", found.st_uid, ", and this process runs as ",
        geteuid(), "; run it as that user, name another directory, or give this one to the user ",
        geteuid(), " (chown)"));
  }
  ASSIGN_OR_RETURN(const Contents contents, ContentsOf(path, own));
  if ((found.st_mode & kOthers) != 0) {
    const std::string what_to_do =
        absl::StrCat("; name a directory that only this program uses, for example ",
                     JoinPath(path, "muster"), ", or give it the mode 0700 yourself");
    const std::string who = absl::StrFormat(
        "%s: others may use this directory (mode %04o), which has to be its user's alone: ", path,
        found.st_mode & 07777);
    if ((found.st_mode & S_ISVTX) != 0 || (!contents.empty && contents.own.empty())) {
      return absl::FailedPreconditionError(
          absl::StrCat(who, "it is not changed, because it holds files of others", what_to_do));
    }
    RETURN_IF_ERROR(Narrow(path, 0700));
  }
  for (const std::string& file : contents.own) {
    struct stat info = {};
    if (lstat(file.c_str(), &info) != 0 || (info.st_mode & kOthers) == 0) continue;
    RETURN_IF_ERROR(Narrow(file, 0600));
  }
  return absl::OkStatus();
}

absl::Status WritePrivately(const std::string& path, const std::string& contents) {
  const std::string temporary = path + ".tmp";
  unlink(temporary.c_str());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, "create", temporary);
  Disk& disk = Disk::Real();
  absl::Status status = fchmod(fd, 0600) == 0
                            ? disk.Write(fd, contents.data(), contents.size(), temporary)
                            : ErrnoStatus(errno, "set the permissions of", temporary);
  if (status.ok()) status = disk.Sync(fd, temporary);
  if (close(fd) != 0 && status.ok()) status = ErrnoStatus(errno, "close", temporary);
  if (status.ok()) status = RenameDurably(temporary, path);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

absl::Status MakePrivateLog(const std::string& path) {
  // Opens without blocking: the open of a pipe would wait for a reader.
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, "create", path);
  struct stat found = {};
  absl::Status status;
  if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) {
    status = absl::FailedPreconditionError(absl::StrCat(path, ": is no regular file"));
  } else if (fchmod(fd, 0600) != 0) {
    status = ErrnoStatus(errno, "set the permissions of", path);
  }
  close(fd);
  return status;
}

}  // namespace muster::files
