#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/mapped_file.h"
#include "common/manifest/manifest.h"
#include "common/problems/problems.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"

namespace muster::manifest {
namespace {

// The file against its record; then its header against the pieces that should be in it.
absl::Status VerifyFile(const std::string& directory, const FileRecord& record,
                        const std::vector<Piece>& pieces) {
  const std::string path = files::JoinPath(directory, record.name);
  ASSIGN_OR_RETURN(const files::MappedFile file, files::MappedFile::Open(path));
  if (file.size() != record.size) {
    return absl::DataLossError(
        absl::StrCat(path, ": expected ", record.size, " bytes, found ", file.size()));
  }
  const std::string hash = files::HashBytes(file.data(), file.size());
  if (hash != record.hash) {
    return absl::DataLossError(
        absl::StrCat(path, ": expected the hash ", record.hash, ", found ", hash));
  }
  ASSIGN_OR_RETURN(const safetensors::File opened, safetensors::File::Open(path));
  for (const Piece& piece : pieces) {
    if (piece.file != record.name) continue;
    const std::string name = EntryName(piece);
    const safetensors::Entry* entry = opened.Find(name);
    const std::vector<int64_t> expected = {piece.end - piece.begin};
    if (entry == nullptr) {
      return absl::DataLossError(absl::StrCat(path, ": no entry '", name, "'"));
    }
    if (safetensors::Name(entry->dtype) != piece.dtype || entry->shape != expected) {
      return absl::DataLossError(absl::StrCat(
          path, ": entry '", name, "': expected ", piece.dtype, " ",
          safetensors::ShapeString(expected), ", found ", safetensors::Name(entry->dtype), " ",
          safetensors::ShapeString(entry->shape)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Manifest> Verify(const std::string& directory) {
  ASSIGN_OR_RETURN(Manifest manifest, Read(directory));
  RETURN_IF_ERROR(Annotate(CheckComplete(manifest), directory));
  Problems problems;
  for (const FileRecord& record : manifest.files) {
    const absl::Status status = VerifyFile(directory, record, manifest.pieces);
    if (!status.ok()) problems.Add(Message(status));
  }
  if (problems.count() > 0) return absl::DataLossError(problems.Text());
  return manifest;
}

}  // namespace muster::manifest
