#include "worker/checkpoint/epoch.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/files/files.h"
#include "common/manifest/name.h"
#include "common/status/status.h"

namespace muster::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char kPayload[] = "muster.dev/newer-generation";

std::string ToText(const Epoch& epoch) {
  return absl::StrCat(epoch.generation, " ", epoch.instance, " ", epoch.incarnation, "\n");
}

// NOT_FOUND without the file.
absl::StatusOr<Epoch> Read(const std::string& folder) {
  const std::string path = files::JoinPath(folder, kEpochFile);
  ASSIGN_OR_RETURN(const std::string text, files::ReadFile(path));
  const std::vector<std::string> words = absl::StrSplit(absl::StripSuffix(text, "\n"), ' ');
  Epoch epoch;
  if (words.size() != 3 || !absl::SimpleAtoi(words[0], &epoch.generation)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": expected a generation, a job's time and a process, found '", text.substr(0, 80),
        "'; remove the file if no other process uses this folder"));
  }
  epoch.instance = words[1];
  epoch.incarnation = words[2];
  return epoch;
}

absl::Status Newer(const std::string& folder, int64_t found, const Epoch& mine,
                   const std::string& why) {
  absl::Status status = absl::AbortedError(
      absl::StrCat(folder, ": expected no generation newer than this one, ", mine.generation,
                   ", found ", why, "; this process changes nothing there any more and ends"));
  status.SetPayload(kPayload, absl::Cord(absl::StrCat(found)));
  return status;
}

// OK unless `found` is newer. A `found` of another job has no meaning, because the folder was given
// to this job later.
absl::Status Compare(const std::string& folder, const Epoch& found, const Epoch& mine) {
  if (found == mine || found.instance != mine.instance || found.generation < mine.generation) {
    return absl::OkStatus();
  }
  return Newer(folder, found.generation, mine,
               absl::StrCat("generation ", found.generation, " (process ", found.incarnation, ")"));
}

// The newest generation that wrote, or began to write, a checkpoint in the folder; 0: none did.
absl::StatusOr<int64_t> NewestWriter(const std::string& folder) {
  int64_t newest = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    auto parsed = manifest::ParseFinalName(name);
    if (!parsed.has_value()) parsed = manifest::ParseTemporaryName(name);
    if (parsed.has_value()) newest = std::max(newest, parsed->generation);
  }
  if (error) return files::ErrnoStatus(error.value(), "list", folder);
  return newest;
}

}  // namespace

absl::Status BeginEpoch(const std::string& folder, const Epoch& mine, files::Disk& disk) {
  const absl::StatusOr<Epoch> found = Read(folder);
  if (found.ok()) {
    if (*found == mine) return absl::OkStatus();
    RETURN_IF_ERROR(Compare(folder, *found, mine));
  } else if (!absl::IsNotFound(found.status())) {
    return found.status();
  }
  // The check also covers checkpoints of older programs, which wrote no epoch file.
  ASSIGN_OR_RETURN(const int64_t newest, NewestWriter(folder));
  if (newest >= mine.generation) {
    return Newer(folder, newest, mine, absl::StrCat("a checkpoint of generation ", newest));
  }
  return files::WriteAtomically(files::JoinPath(folder, kEpochFile), ToText(mine), disk);
}

absl::Status CheckEpoch(const std::string& folder, const Epoch& mine) {
  const absl::StatusOr<Epoch> found = Read(folder);
  if (absl::IsNotFound(found.status())) {
    return absl::NotFoundError(
        absl::StrCat(Message(found.status()),
                     ": this folder is not the one in which the session began; is its file "
                     "system mounted, or was the folder moved?"));
  }
  RETURN_IF_ERROR(found.status());
  RETURN_IF_ERROR(Compare(folder, *found, mine));
  if (*found == mine) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      files::JoinPath(folder, kEpochFile), ": expected '", absl::StripSuffix(ToText(mine), "\n"),
      "', found '", absl::StripSuffix(ToText(*found), "\n"), "'"));
}

std::optional<int64_t> NewerGeneration(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  int64_t generation = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &generation))
    return std::nullopt;
  return generation;
}

}  // namespace muster::checkpoint
