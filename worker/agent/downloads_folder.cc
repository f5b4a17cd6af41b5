#include "worker/agent/downloads_folder.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/downloads/downloads.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/files/private_directory.h"
#include "common/status/status.h"

namespace muster::agent {
namespace {

// As exports::TemporaryPath names files that have no name yet: ".JOB-7.JOB-g3-INCARNATION.tmp".
bool IsUnfinished(const std::string& name) {
  return absl::StartsWith(name, ".") && absl::EndsWith(name, ".tmp");
}

void RemoveEach(const std::string& folder, const std::function<bool(const std::string&)>& which) {
  if (folder.empty()) return;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!which(name)) continue;
    const std::string path = files::JoinPath(folder, name);
    if (unlink(path.c_str()) == 0) {
      spdlog::info("{} is removed", path);
    } else if (errno != ENOENT) {
      spdlog::warn("{}", Message(files::ErrnoStatus(errno, "remove", path)));
    }
  }
  if (error) spdlog::warn("{}", Message(files::ErrnoStatus(error.value(), "list", folder)));
}

}  // namespace

DownloadedFile::~DownloadedFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status DownloadedFile::ReadAt(uint64_t offset, size_t bytes, char* out) const {
  while (bytes > 0) {
    const ssize_t got = pread(fd_, out, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return files::ErrnoStatus(errno, "read", "the file");
    if (got == 0) {
      return absl::DataLossError(absl::StrCat("the file ends at ", offset, " of its bytes"));
    }
    out += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

void DownloadedFile::Touch() const { (void)futimens(fd_, nullptr); }

absl::Status DownloadsFolder::Open() {
  if (path_.empty()) return absl::OkStatus();
  path_ = std::filesystem::absolute(path_).string();
  if (const absl::Status made = files::MakePrivateDirectory(path_, {}); !made.ok()) {
    path_.clear();
    return made;
  }
  RemoveEach(path_, IsUnfinished);
  return absl::OkStatus();
}

std::map<std::string, std::string> DownloadsFolder::Environment() const {
  if (path_.empty()) return {};
  return {{kDownloadsVariable, path_}};
}

absl::StatusOr<DownloadedFile> DownloadsFolder::Read(const std::string& job_id, uint64_t command,
                                                     uint64_t bytes) const {
  const absl::Status gone = absl::NotFoundError(absl::StrCat(
      "node '", node_, "' does not have the file of operation '", job_id, "/", command,
      "': it was removed because a client has received it, or because nobody fetched it within ",
      absl::FormatDuration(keep_), "; gather again"));
  const std::string path = DownloadPath(path_, job_id, command);
  if (path.empty()) return gone;
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return gone;
  if (fd < 0) return files::ErrnoStatus(errno, "open", path);
  DownloadedFile file(fd);
  struct stat info = {};
  if (fstat(fd, &info) != 0) return files::ErrnoStatus(errno, "read", path);
  // Another size: the file of a deleted job with this id.
  if (!S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != bytes) return gone;
  return file;
}

void DownloadsFolder::Remove(const std::string& job_id, uint64_t command) const {
  const std::string path = DownloadPath(path_, job_id, command);
  if (path.empty()) return;
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    spdlog::warn("{}", Message(files::ErrnoStatus(errno, "remove", path)));
  }
}

void DownloadsFolder::RemoveUnfinished(const WorkerId& worker) const {
  const std::string mark = absl::StrCat("-g", worker.generation, "-", worker.incarnation);
  RemoveEach(path_, [&](const std::string& name) {
    return IsUnfinished(name) && absl::StrContains(name, mark);
  });
}

void DownloadsFolder::RemoveOld(absl::Time now) const {
  RemoveEach(path_, [&](const std::string& name) {
    if (IsUnfinished(name)) return false;  // its worker writes it
    struct stat info = {};
    if (lstat(files::JoinPath(path_, name).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
      return false;
    }
    return now - absl::TimeFromTimespec(info.st_mtim) >= keep_;
  });
}

}  // namespace muster::agent
