#include "worker/checkpoint/directory.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/files/files.h"
#include "common/status/status.h"

namespace muster::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char kTemporarySuffix[] = ".tmp";
constexpr char kNoncePrefix[] = ".muster-nonce-";

std::string NoncePath(const std::string& directory, uint64_t nonce) {
  return files::JoinPath(directory, absl::StrFormat("%s%016x", kNoncePrefix, nonce));
}

// A path that cannot be checked may exist.
absl::StatusOr<bool> Exists(const std::string& path) {
  std::error_code error;
  const bool exists = fs::exists(path, error);
  if (error) return files::ErrnoStatus(error.value(), "inspect", path);
  return exists;
}

bool IsLeftover(const std::string& name, int64_t generation) {
  if (absl::StartsWith(name, kNoncePrefix)) return true;
  const auto temporary = manifest::ParseTemporaryName(name);
  return temporary.has_value() && temporary->generation <= generation;
}

}  // namespace

absl::Status Commit(const std::string& temporary, const std::string& final,
                    const manifest::Manifest& manifest, files::Disk& disk) {
  ASSIGN_OR_RETURN(const bool exists, Exists(final));
  if (exists) return absl::AlreadyExistsError(absl::StrCat(final, ": exists already"));
  RETURN_IF_ERROR(manifest::CheckComplete(manifest));
  RETURN_IF_ERROR(manifest::Write(manifest, temporary, disk));
  RETURN_IF_ERROR(disk.SyncDirectory(temporary));
  RETURN_IF_ERROR(disk.Rename(temporary, final));
  const absl::Status durable = disk.SyncDirectory(files::ParentDirectory(final));
  // The new name may not survive a crash, and it will not be reported: rename it back.
  if (!durable.ok()) rename(final.c_str(), temporary.c_str());
  return durable;
}

absl::StatusOr<std::string> SetAside(const std::string& path) {
  std::string aside = path + ".bad";
  for (int i = 2;; ++i) {
    ASSIGN_OR_RETURN(const bool exists, Exists(aside));
    if (!exists) break;
    aside = absl::StrCat(path, ".bad.", i);
  }
  RETURN_IF_ERROR(files::RenameDurably(path, aside));
  return aside;
}

absl::StatusOr<std::vector<std::string>> ListCheckpoints(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (ParseFinalName(name).has_value()) names.push_back(name);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return files::ErrnoStatus(error.value(), "list", directory);
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status RemoveDirectory(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return files::ErrnoStatus(error.value(), "remove", path);
  return absl::OkStatus();
}

absl::Status RemoveCheckpoint(const std::string& path) {
  const std::string temporary = path + kTemporarySuffix;
  RETURN_IF_ERROR(RemoveDirectory(temporary));
  ASSIGN_OR_RETURN(const bool exists, Exists(path));
  if (!exists) return absl::OkStatus();
  RETURN_IF_ERROR(files::RenameDurably(path, temporary));
  return RemoveDirectory(temporary);
}

absl::StatusOr<std::vector<std::string>> RemoveLeftovers(const std::string& directory,
                                                         int64_t generation) {
  std::vector<std::string> leftovers;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (IsLeftover(name, generation)) leftovers.push_back(name);
  }
  if (error) return files::ErrnoStatus(error.value(), "list", directory);
  std::sort(leftovers.begin(), leftovers.end());
  for (const std::string& name : leftovers) {
    RETURN_IF_ERROR(RemoveDirectory(files::JoinPath(directory, name)));
  }
  return leftovers;
}

absl::Status WriteNonce(const std::string& directory, uint64_t nonce) {
  RETURN_IF_ERROR(files::CreateDirectories(directory));
  RETURN_IF_ERROR(files::Disk::Real().SyncDirectory(files::ParentDirectory(directory)));
  return files::WriteAtomically(NoncePath(directory, nonce), absl::StrCat(nonce));
}

absl::Status CheckNonce(const std::string& directory, uint64_t nonce) {
  ASSIGN_OR_RETURN(const std::string found, files::ReadFile(NoncePath(directory, nonce)));
  if (found == absl::StrCat(nonce)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(NoncePath(directory, nonce), ": expected ",
                                                    nonce, ", found '", found.substr(0, 32), "'"));
}

void RemoveNonce(const std::string& directory, uint64_t nonce) {
  unlink(NoncePath(directory, nonce).c_str());
}

}  // namespace muster::checkpoint
