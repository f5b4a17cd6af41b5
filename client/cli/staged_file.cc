#include "client/cli/staged_file.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/status.h"

namespace muster::cli {

StagedFile::StagedFile(std::string path) : path_(std::move(path)) {}

StagedFile::~StagedFile() {
  std::error_code ignored;
  if (durable_) std::filesystem::remove(temporary(), ignored);
}

absl::StatusOr<std::unique_ptr<StagedFile>> StagedFile::Create(const std::string& path) {
  std::error_code error;
  const auto found = std::filesystem::symlink_status(path, error).type();
  if (found != std::filesystem::file_type::not_found &&
      found != std::filesystem::file_type::regular) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is no regular file, and is not replaced; give another name"));
  }
  std::unique_ptr<StagedFile> file(new StagedFile(path));
  ASSIGN_OR_RETURN(file->writer_, files::HashingWriter::Create(file->temporary()));
  return file;
}

absl::Status StagedFile::MakeDurable() {
  RETURN_IF_ERROR(writer_->Finish().status());
  durable_ = true;
  return absl::OkStatus();
}

absl::Status StagedFile::Publish() {
  RETURN_IF_ERROR(files::RenameDurably(temporary(), path_));
  durable_ = false;
  return absl::OkStatus();
}

}  // namespace muster::cli
