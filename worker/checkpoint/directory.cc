#include "worker/checkpoint/directory.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <tuple>

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

// True if the path exists. An error if this cannot be checked.
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

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The reason in a manifest why its checkpoint does not continue the training; empty: none.
std::string Objection(const manifest::Manifest& manifest, const std::string& job,
                      const std::string& instance) {
  if (manifest.job != job) {
    return absl::StrCat("it was written by job '", manifest.job, "', not by '", job, "'");
  }
  if (manifest.job_instance != instance) {
    return absl::StrCat("it was written by another job of this name, submitted at ",
                        manifest.job_instance);
  }
  return "";
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
  // The new name may not survive a crash, and will not be reported, so the directory is renamed
  // back.
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

bool WrittenBefore(const std::string& a, const std::string& b) {
  const auto first = manifest::ParseFinalName(a);
  const auto second = manifest::ParseFinalName(b);
  if (!first.has_value() || !second.has_value()) return !first.has_value() && second.has_value();
  return std::tie(first->generation, first->step) < std::tie(second->generation, second->step);
}

void Judge(const std::vector<std::string>& recorded, int64_t generation,
           std::vector<FoundCheckpoint>* found) {
  std::string newest_recorded;
  for (const std::string& name : recorded) {
    if (newest_recorded.empty() || WrittenBefore(newest_recorded, name)) newest_recorded = name;
  }
  for (FoundCheckpoint& one : *found) {
    if (one.reason.empty() && one.generation >= generation) {
      one.reason = absl::StrCat("it is of generation ", one.generation,
                                ", which is not older than this generation, ", generation);
    }
    if (one.reason.empty() && !newest_recorded.empty() &&
        WrittenBefore(one.name, newest_recorded)) {
      one.reason = absl::StrCat("it is older than ", newest_recorded, ", which is recorded");
    }
  }
  // The order is from the newest generation to the oldest, because a later generation decided from
  // which step training continued.
  const FoundCheckpoint* later = nullptr;
  for (auto one = found->rbegin(); one != found->rend(); ++one) {
    if (!one->reason.empty()) continue;
    if (later != nullptr && later->generation > one->generation && later->step < one->step) {
      one->reason = absl::StrCat("generation ", later->generation,
                                 " went on from an earlier step: it wrote ", later->name);
    } else {
      later = &*one;
    }
  }
}

absl::StatusOr<std::vector<FoundCheckpoint>> FindUnknown(const std::string& folder,
                                                         const KnownCheckpoints& known,
                                                         const std::string& job,
                                                         const std::string& instance,
                                                         int64_t generation) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListCheckpoints(folder));
  std::sort(names.begin(), names.end(), WrittenBefore);
  std::vector<FoundCheckpoint> found;
  for (const std::string& name : names) {
    if (Contains(known.recorded, name) || Contains(known.retired, name)) continue;
    const auto parsed = *manifest::ParseFinalName(name);
    FoundCheckpoint one{.name = name, .step = parsed.step, .generation = parsed.generation};
    const auto manifest = manifest::Read(files::JoinPath(folder, name));
    if (!manifest.ok()) {
      one.reason = Message(manifest.status());
    } else {
      one.last_command = manifest->last_command;
      one.reason = Objection(*manifest, job, instance);
    }
    found.push_back(std::move(one));
  }
  Judge(known.recorded, generation, &found);
  return found;
}

}  // namespace muster::checkpoint
