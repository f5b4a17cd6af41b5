#include "worker/tensorboard/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "absl/memory/memory.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/exports/folder.h"
#include "common/files/files.h"
#include "common/status/status.h"
#include "worker/tensorboard/event.h"
#include "worker/tensorboard/event.pb.h"

namespace muster::tensorboard {
namespace {

namespace fs = std::filesystem;

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

constexpr std::string_view kPrefix = "events.out.tfevents.";

// The most digits of a number. FileName makes no longer numbers, and a larger number plus one might
// overflow.
constexpr size_t kDigits = 10;

// Returns the number in a name that FileName has made.
std::optional<int64_t> NumberOf(const std::string& name) {
  if (name.compare(0, kPrefix.size(), kPrefix) != 0) return std::nullopt;
  const size_t end = name.find('.', kPrefix.size());
  if (end == std::string::npos || end - kPrefix.size() > kDigits) return std::nullopt;
  int64_t number = 0;
  if (!absl::SimpleAtoi(name.substr(kPrefix.size(), end - kPrefix.size()), &number)) {
    return std::nullopt;
  }
  return number;
}

// The temporary name. TensorBoard reads every file whose name contains "tfevents", so this name
// does not. A leftover file is replaced.
constexpr char kTemporary[] = ".muster-events.tmp";

}  // namespace

std::string FolderOf(const std::string& directory, const std::string& job) {
  return files::JoinPath(directory, job);
}

absl::Status Prepare(const std::string& directory, const std::string& job) {
  const std::string path = FolderOf(directory, job);
  RETURN_IF_ERROR(exports::CheckFolder(path));
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return Problem(error.value(), path);
  if (access(path.c_str(), W_OK | X_OK) != 0) return Problem(errno, path);
  return absl::OkStatus();
}

absl::StatusOr<Place> PlaceOf(const std::string& directory) {
  std::error_code error;
  const std::string path = fs::canonical(directory, error).string();
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

std::string FileName(int64_t number, const std::string& writer) {
  return absl::StrFormat("%s%010d.%s", kPrefix, number, writer);
}

absl::StatusOr<std::vector<std::string>> EventFiles(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (NumberOf(name).has_value()) names.push_back(std::move(name));
  }
  if (error && error.value() != ENOENT) return files::ErrnoStatus(error.value(), "list", folder);
  std::sort(names.begin(), names.end());
  return names;
}

int64_t LargestNumber(const std::vector<std::string>& names) {
  int64_t largest = 0;
  // The last name need not have the largest number, because other programs write numbers without
  // zeros before them.
  for (const std::string& name : names) largest = std::max(largest, NumberOf(name).value_or(0));
  return largest;
}

Numbers NumbersAround(const std::string& folder, const std::vector<std::string>& names,
                      int64_t step) {
  Numbers found;
  bool taken_back = false;  // true: a START takes back the later steps of earlier files
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (taken_back && (found.newest.has_value() || step < 0)) break;
    const bool counts = !taken_back;
    std::optional<int64_t> newest;
    std::ifstream file(fs::path(folder) / *name, std::ios::binary);
    Event event;
    while (const auto data = ReadRecord(file)) {
      if (!event.ParseFromString(*data)) break;
      if (event.session_log().status() == SessionLog::START && event.step() <= step + 1) {
        taken_back = true;
      }
      for (const Summary::Value& value : event.summary().value()) {
        if (value.value_case() != Summary::Value::kSimpleValue) continue;
        if (event.step() <= step) {
          newest = std::max(newest.value_or(0), event.step());
        } else if (counts) {
          found.tags_after.insert(value.tag());
        }
      }
    }
    if (!found.newest.has_value()) found.newest = newest;
  }
  return found;
}

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
    // A reader might read records twice without the truncation, because the next file repeats them
    // without an earlier START. The caller gets the error of the write, even if the truncation
    // fails, too.
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
