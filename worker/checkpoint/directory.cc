#include "worker/checkpoint/directory.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
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

// Reads a plain decimal number at `*at` and moves `*at` behind it.
std::optional<int64_t> ParseNumber(const std::string& text, size_t* at) {
  const char* begin = text.data() + *at;
  const char* end = text.data() + text.size();
  if (begin == end || *begin < '0' || *begin > '9') return std::nullopt;
  int64_t value = 0;
  const auto [next, error] = std::from_chars(begin, end, value);
  if (error != std::errc()) return std::nullopt;
  *at += next - begin;
  return value;
}

bool IsStale(const std::string& name, const std::vector<std::string>& keep) {
  if (absl::StartsWith(name, kNoncePrefix)) return true;
  if (absl::EndsWith(name, kTemporarySuffix)) {
    return ParseFinalName(name.substr(0, name.size() - sizeof(kTemporarySuffix) + 1)).has_value();
  }
  return ParseFinalName(name).has_value() &&
         std::find(keep.begin(), keep.end(), name) == keep.end();
}

}  // namespace

std::string FinalName(int64_t step, int64_t generation) {
  return absl::StrCat("step-", step, "-g", generation);
}

std::string TemporaryName(int64_t step, int64_t generation) {
  return FinalName(step, generation) + kTemporarySuffix;
}

std::optional<CheckpointName> ParseFinalName(const std::string& name) {
  if (!absl::StartsWith(name, "step-")) return std::nullopt;
  size_t at = 5;
  const auto step = ParseNumber(name, &at);
  if (!step.has_value() || name.compare(at, 2, "-g") != 0) return std::nullopt;
  at += 2;
  const auto generation = ParseNumber(name, &at);
  if (!generation.has_value() || name != FinalName(*step, *generation)) return std::nullopt;
  return CheckpointName{*step, *generation};
}

absl::Status Commit(const std::string& temporary, const std::string& final,
                    const manifest::Manifest& manifest, files::Disk& disk) {
  if (fs::exists(final)) return absl::AlreadyExistsError(absl::StrCat(final, ": exists already"));
  RETURN_IF_ERROR(manifest::CheckComplete(manifest));
  RETURN_IF_ERROR(manifest::Write(manifest, temporary, disk));
  RETURN_IF_ERROR(disk.SyncDirectory(temporary));
  RETURN_IF_ERROR(disk.Rename(temporary, final));
  const absl::Status durable = disk.SyncDirectory(files::ParentDirectory(final));
  // The new name may not survive a crash, and nobody will be told of it: take it back.
  if (!durable.ok()) rename(final.c_str(), temporary.c_str());
  return durable;
}

absl::StatusOr<std::string> SetAside(const std::string& path) {
  std::string aside = path + ".bad";
  for (int i = 2; fs::exists(aside); ++i) aside = absl::StrCat(path, ".bad.", i);
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
  if (!fs::exists(path)) return absl::OkStatus();
  RETURN_IF_ERROR(files::RenameDurably(path, temporary));
  return RemoveDirectory(temporary);
}

absl::StatusOr<std::vector<std::string>> RemoveStale(const std::string& directory,
                                                     const std::vector<std::string>& keep) {
  std::vector<std::string> stale;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (IsStale(name, keep)) stale.push_back(name);
  }
  if (error) return files::ErrnoStatus(error.value(), "list", directory);
  std::sort(stale.begin(), stale.end());
  for (const std::string& name : stale) {
    const std::string path = files::JoinPath(directory, name);
    RETURN_IF_ERROR(ParseFinalName(name).has_value() ? RemoveCheckpoint(path)
                                                     : RemoveDirectory(path));
  }
  return stale;
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
