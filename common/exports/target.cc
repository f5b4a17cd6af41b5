#include "common/exports/target.h"

#include <fnmatch.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/exports/signature.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/status/status.h"

namespace muster::exports {
namespace {

namespace fs = std::filesystem;

constexpr char kWhatToDo[] =
    "choose another export.path, move that file away, or say export: {overwrite: true}";

// A file of every checkpoint (common/manifest/manifest.h).
constexpr char kManifest[] = "MANIFEST.json";
// The weights of a sharded model, which an index lists.
constexpr char kShards[] = "*-of-*.safetensors";

std::string NameOf(const std::string& path) { return fs::path(path).filename().string(); }

// Returns whether both names lead to the same file or folder.
bool IsSame(const std::string& a, const std::string& b) {
  if (fs::path(a).lexically_normal() == fs::path(b).lexically_normal()) return true;
  struct stat one = {}, other = {};
  return stat(a.c_str(), &one) == 0 && stat(b.c_str(), &other) == 0 && one.st_ino == other.st_ino &&
         one.st_dev == other.st_dev;
}

bool IsRead(const std::string& path, const std::string& input) {
  // An input may be a folder, all files of which are read.
  if (IsSame(path, input) || IsSame(files::ParentDirectory(path), input)) return true;
  return absl::EndsWith(input, ".index.json") && fnmatch(kShards, NameOf(path).c_str(), 0) == 0 &&
         IsSame(files::ParentDirectory(path), files::ParentDirectory(input));
}

// The mode of the file at `path`, without following a link; nothing if there is no file.
absl::StatusOr<std::optional<mode_t>> ModeOf(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) == 0) return info.st_mode;
  // A part of the path may be a file; the attempt to make the folder then fails with an error.
  if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
  return files::ErrnoStatus(errno, "stat", path);
}

absl::Status CheckRegular(const std::string& path) {
  ASSIGN_OR_RETURN(const auto mode, ModeOf(path));
  if (!mode.has_value() || S_ISREG(*mode)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path,
      S_ISDIR(*mode)   ? " is a folder"
      : S_ISLNK(*mode) ? " is a symbolic link, which is not replaced, whatever it leads to"
                       : " exists and is not a regular file",
      "; choose another path, or remove it"));
}

absl::StatusOr<bool> Exists(const std::string& path) {
  ASSIGN_OR_RETURN(const auto mode, ModeOf(path));
  return mode.has_value();
}

}  // namespace

safetensors::Metadata MetadataOf(const std::string& job_name, const std::string& job_id,
                                 const tokenizer::Source& tokenizer) {
  safetensors::Metadata metadata = {{"format", "pt"}, {kJobNameKey, job_name}, {kJobIdKey, job_id}};
  if (tokenizer.known()) {
    metadata[kTokenizerKey] = tokenizer.path;
    metadata[kTokenizerHashKey] = tokenizer.hash;
  }
  return metadata;
}

absl::StatusOr<std::string> WriterOf(const std::string& path) {
  ASSIGN_OR_RETURN(const bool exists, Exists(path));
  if (!exists) return "";
  ASSIGN_OR_RETURN(const safetensors::File file, safetensors::File::Open(path));
  const safetensors::Metadata& metadata = file.header().metadata;
  const auto writer = metadata.find(kJobNameKey);
  return writer == metadata.end() ? "" : writer->second;
}

absl::Status CheckPlace(const std::string& path, const Inputs& inputs) {
  RETURN_IF_ERROR(CheckRegular(path));
  for (const auto& [setting, input] : inputs) {
    if (!IsRead(path, input)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is read by this job (", setting, "); choose another path"));
  }
  const std::string folder = files::ParentDirectory(path);
  ASSIGN_OR_RETURN(const bool in_checkpoint, Exists(files::JoinPath(folder, kManifest)));
  if (!in_checkpoint) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, " would lie in ", folder, ", which is a checkpoint; choose another path"));
}

absl::Status CheckTarget(const std::string& path, const std::string& job_name, bool overwrite,
                         const Inputs& inputs) {
  // Checked before the file is opened, because opening a pipe would wait for its writer.
  RETURN_IF_ERROR(CheckPlace(path, inputs));
  if (overwrite) return absl::OkStatus();
  const auto writer = WriterOf(path);
  if (!writer.ok() && !absl::IsDataLoss(writer.status())) return writer.status();
  if (!writer.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " exists, and is not an export of the job '", job_name, "'; ", kWhatToDo));
  }
  if (*writer == job_name) return absl::OkStatus();
  if (writer->empty()) {
    ASSIGN_OR_RETURN(const bool exists, Exists(path));
    if (!exists) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        path, " exists, and does not say that the job '", job_name, "' wrote it; ", kWhatToDo));
  }
  return absl::FailedPreconditionError(absl::StrCat(path, " was written by the job '", *writer,
                                                    "', and this one is '", job_name, "'; ",
                                                    kWhatToDo));
}

absl::Status CheckOutput(const std::string& path, const std::string& job_name, bool overwrite,
                         const Inputs& inputs) {
  RETURN_IF_ERROR(CheckPlace(path, inputs));
  if (overwrite) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool exists, Exists(path));
  if (!exists || IsSignedBy(path, job_name)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      path, " exists; choose another output, move that file away, or say overwrite: true"));
}

absl::Status CheckConfig(const std::string& path, const std::string& config,
                         const std::string& job_name, bool overwrite) {
  return CheckBeside(path, "config.json", config, job_name, overwrite);
}

absl::Status CheckBeside(const std::string& path, const std::string& name,
                         const std::string& contents, const std::string& job_name, bool overwrite) {
  if (contents.empty()) return absl::OkStatus();
  const std::string beside = files::JoinPath(files::ParentDirectory(path), name);
  RETURN_IF_ERROR(CheckRegular(beside));
  ASSIGN_OR_RETURN(const bool exists, Exists(beside));
  if (!exists) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string found, files::ReadFile(beside));
  if (found == contents) return absl::OkStatus();
  const std::string writer = WriterOf(path).value_or("");
  if (!writer.empty() && (overwrite || writer == job_name)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(beside, " exists, and was not written with ", path, " by the job '", job_name,
                   "'; choose another folder for export.path, or move that file away"));
}

absl::Status CheckHoldsNoInput(const std::string& folder, const Inputs& inputs) {
  for (const auto& [setting, input] : inputs) {
    if (input.empty()) continue;
    if (!IsSame(folder, files::ParentDirectory(input)) && !IsSame(folder, input)) continue;
    return absl::FailedPreconditionError(absl::StrCat(folder, " holds ", input, ", which is read (",
                                                      setting, "); choose another folder"));
  }
  return absl::OkStatus();
}

}  // namespace muster::exports
