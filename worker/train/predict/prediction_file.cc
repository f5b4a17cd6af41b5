#include "worker/train/predict/prediction_file.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/exports/signature.h"
#include "common/files/files.h"
#include "common/files/mapped_file.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"
#include "worker/data/npy.h"

namespace muster::train {
namespace {

std::string TemporaryOf(const PredictionTarget& target) {
  const Identity& identity = target.identity;
  return exports::TemporaryPath(target.path, identity.job, identity.generation,
                                identity.incarnation);
}

absl::Status Probe(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return errno == ENOSPC ? absl::OkStatus() : files::ErrnoStatus(errno, "create", path);
  close(fd);
  unlink(path.c_str());
  return absl::OkStatus();
}

// Renames like Disk::Rename, but returns ALREADY_EXISTS if `to` exists. UNIMPLEMENTED: the file
// system has no such rename.
absl::Status RenameNew(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
    return absl::OkStatus();
  }
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
    return absl::UnimplementedError("the file system cannot rename without replacing");
  }
  return files::ErrnoStatus(errno, absl::StrCat("rename ", from, " to"), to);
}

std::string_view BytesOf(const files::MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

absl::StatusOr<bool> SameBytes(const std::string& a, const std::string& b) {
  ASSIGN_OR_RETURN(const files::MappedFile one, files::MappedFile::Open(a));
  ASSIGN_OR_RETURN(const files::MappedFile other, files::MappedFile::Open(b));
  if (one.size() != other.size()) return false;
  bool same = true;
  activity::ByBlocks(one.size(), [&](size_t offset, size_t bytes) {
    same = BytesOf(one).substr(offset, bytes) == BytesOf(other).substr(offset, bytes);
    return same;
  });
  return same;
}

}  // namespace

absl::Status PreparePredictionFile(const PredictionTarget& target) {
  RETURN_IF_ERROR(exports::CheckOutput(target.path, target.job_name,
                                       target.overwrite || target.identity.generation > 1,
                                       target.inputs));
  RETURN_IF_ERROR(files::CreateDirectories(files::ParentDirectory(target.path)));
  const auto removed =
      exports::RemoveStale(target.path, target.identity.job, target.identity.generation);
  if (!removed.ok()) {
    spdlog::warn("cannot remove the temporary files that older generations left: {}",
                 Message(removed.status()));
  }
  return Probe(TemporaryOf(target));
}

absl::StatusOr<std::string> PredictionHeader(const std::string& path, const std::string& name,
                                             const PredictionArray& array) {
  if (absl::EndsWith(path, ".npy")) {
    return data::MakeNpyHeader(array.dtype == safetensors::DType::kI64 ? "<i8" : "<f4",
                               array.shape);
  }
  ASSIGN_OR_RETURN(auto plan, safetensors::Plan({{name, array.dtype, array.shape}}, {}));
  return std::move(plan.prefix);
}

absl::StatusOr<std::unique_ptr<PredictionFile>> PredictionFile::Create(
    const PredictionTarget& target, uint64_t size, files::Disk& disk) {
  const std::string temporary = TemporaryOf(target);
  std::unique_ptr<PredictionFile> file(new PredictionFile(target, temporary, disk));
  ASSIGN_OR_RETURN(auto opened, checkpoint::OutputFile::Create(temporary, size, disk));
  file->file_ = std::make_unique<checkpoint::OutputFile>(std::move(opened));
  return file;
}

PredictionFile::~PredictionFile() {
  // Create may have failed after it created the file.
  if (!placed_) unlink(temporary_.c_str());
}

absl::Status PredictionFile::WriteAt(uint64_t offset, std::string_view bytes) {
  return file_->WriteAt(offset, bytes.data(), bytes.size());
}

absl::StatusOr<PredictionFile::Placed> PredictionFile::Place() {
  exports::Sign(temporary_, target_.job_name);
  RETURN_IF_ERROR(file_->Sync());
  file_.reset();
  const std::string& path = target_.path;
  // The check comes before the existing file is read: reading a pipe would wait for its writer.
  RETURN_IF_ERROR(exports::CheckPlace(path, target_.inputs));
  absl::Status renamed = absl::UnimplementedError("an existing file is replaced");
  if (!target_.overwrite) {
    renamed = RenameNew(temporary_, path);
    const auto same = renamed.ok() ? absl::StatusOr<bool>(false) : SameBytes(temporary_, path);
    if (same.ok() && *same) {
      // The process that renamed the file may have ended before the name was durable.
      RETURN_IF_ERROR(disk_.SyncDirectory(files::ParentDirectory(path)));
      return Placed::kSame;
    }
  }
  if (absl::IsAlreadyExists(renamed) || absl::IsUnimplemented(renamed)) {
    RETURN_IF_ERROR(Annotate(exports::CheckOutput(path, target_.job_name, target_.overwrite),
                             "the file that is there has other contents"));
    renamed = disk_.Rename(temporary_, path);
  }
  RETURN_IF_ERROR(renamed);
  placed_ = true;
  RETURN_IF_ERROR(disk_.SyncDirectory(files::ParentDirectory(path)));
  return Placed::kNew;
}

}  // namespace muster::train
