#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/manifest/manifest.h"
#include "common/problems/problems.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"

namespace muster::manifest {
namespace {

struct Contents {
  uint64_t size = 0;
  std::string hash;
};

// Read, not mapped, so that a failed read is an error and not a signal.
absl::StatusOr<Contents> ReadContents(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return files::ErrnoStatus(errno, "open", path);
  Contents contents;
  files::Hasher hasher;
  std::vector<char> block(1 << 20);
  while (true) {
    const ssize_t got = read(fd, block.data(), block.size());
    if (got > 0) {
      hasher.Update(block.data(), static_cast<size_t>(got));
      contents.size += static_cast<uint64_t>(got);
    } else if (got == 0) {
      close(fd);
      contents.hash = hasher.Hex();
      return contents;
    } else if (errno != EINTR) {
      const int error = errno;
      close(fd);
      return files::ErrnoStatus(error, "read", path);
    }
  }
}

// The file against its record; then its header against the pieces that should be in it.
absl::Status VerifyFile(const std::string& directory, const FileRecord& record,
                        const std::vector<Piece>& pieces) {
  const std::string path = files::JoinPath(directory, record.name);
  ASSIGN_OR_RETURN(const Contents found, ReadContents(path));
  if (found.size != record.size) {
    return absl::DataLossError(
        absl::StrCat(path, ": expected ", record.size, " bytes, found ", found.size));
  }
  if (found.hash != record.hash) {
    return absl::DataLossError(
        absl::StrCat(path, ": expected the hash ", record.hash, ", found ", found.hash));
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
      return absl::DataLossError(absl::StrCat(path, ": entry '", name, "': expected ", piece.dtype,
                                              " ", safetensors::ShapeString(expected), ", found ",
                                              safetensors::Name(entry->dtype), " ",
                                              safetensors::ShapeString(entry->shape)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Manifest> Verify(const std::string& directory) {
  ASSIGN_OR_RETURN(Manifest manifest, Read(directory));
  RETURN_IF_ERROR(Annotate(CheckComplete(manifest), directory));
  Problems damaged;
  Problems unread;
  absl::StatusCode code = absl::StatusCode::kOk;
  for (const FileRecord& record : manifest.files) {
    const absl::Status status = VerifyFile(directory, record, manifest.pieces);
    if (status.ok()) continue;
    if (absl::IsDataLoss(status)) {
      damaged.Add(Message(status));
    } else {
      if (code == absl::StatusCode::kOk) code = status.code();
      unread.Add(Message(status));
    }
  }
  if (damaged.count() > 0) return absl::DataLossError(damaged.Text());
  if (unread.count() > 0) return absl::Status(code, unread.Text());
  return manifest;
}

}  // namespace muster::manifest
