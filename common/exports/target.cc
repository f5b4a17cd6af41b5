#include "common/exports/target.h"

#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/files/disk.h"

namespace muster::exports {
namespace {

constexpr char kWhatToDo[] =
    "choose another export.path, move that file away, or say export: {overwrite: true}";

}  // namespace

safetensors::Metadata MetadataOf(const std::string& job_name, const std::string& job_id) {
  return {{"format", "pt"}, {kJobNameKey, job_name}, {kJobIdKey, job_id}};
}

absl::Status CheckTarget(const std::string& path, const std::string& job_name, bool overwrite) {
  // Checked before the file is opened, because opening a pipe would wait for its writer.
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return files::ErrnoStatus(errno, "stat", path);
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " exists and is not a regular file; choose another export.path"));
  }
  if (overwrite) return absl::OkStatus();
  const auto file = safetensors::File::Open(path);
  if (!file.ok() && !absl::IsDataLoss(file.status())) return file.status();
  if (!file.ok()) {
    // The reason, which repeats the path, comes last, so that a caller may cut it.
    return absl::FailedPreconditionError(
        absl::StrCat(path, " exists, and is not an export of the job '", job_name, "'; ", kWhatToDo,
                     " (", file.status().message(), ")"));
  }
  const safetensors::Metadata& metadata = file->header().metadata;
  const auto writer = metadata.find(kJobNameKey);
  if (writer == metadata.end()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " exists, and does not say that the job '", job_name, "' wrote it; ", kWhatToDo));
  }
  if (writer->second == job_name) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(path, " was written by the job '",
                                                    writer->second, "', and this one is '",
                                                    job_name, "'; ", kWhatToDo));
}

absl::Status CheckAbsent(const std::string& path, bool overwrite) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return files::ErrnoStatus(errno, "stat", path);
  }
  if (S_ISDIR(info.st_mode)) {
    return absl::AlreadyExistsError(absl::StrCat(path, " is a folder; choose another output"));
  }
  if (overwrite) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      path, " exists; choose another output, move that file away, or say overwrite: true"));
}

}  // namespace muster::exports
