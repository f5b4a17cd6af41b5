#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/hashing_writer.h"
#include "common/manifest/manifest.h"
#include "common/problems/faults.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"

namespace muster::manifest {
namespace {

// Reads, and does not map, the file, so that a failed read is an error and not a signal.
absl::StatusOr<files::FileDigest> ReadContents(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return files::ErrnoStatus(errno, "open", path);
  files::FileDigest contents;
  files::Hasher hasher;
  files::BlockHasher blocks;
  std::vector<char> block(1 << 20);
  while (true) {
    const ssize_t got = read(fd, block.data(), block.size());
    if (got > 0) {
      hasher.Update(block.data(), static_cast<size_t>(got));
      blocks.Update(block.data(), static_cast<size_t>(got));
      contents.size += static_cast<uint64_t>(got);
    } else if (got == 0) {
      close(fd);
      contents.hash = hasher.Hex();
      contents.blocks = blocks.Finish();
      return contents;
    } else if (errno != EINTR) {
      const int error = errno;
      close(fd);
      return files::ErrnoStatus(error, "read", path);
    }
  }
}

absl::Status WrongSize(const std::string& path, uint64_t expected, uint64_t found) {
  return absl::DataLossError(absl::StrCat(path, ": expected ", expected, " bytes, found ", found));
}

// Checks the contents against the file's record.
absl::Status CheckContents(const std::string& path, const FileRecord& record) {
  ASSIGN_OR_RETURN(const files::FileDigest found, ReadContents(path));
  if (found.size != record.size) return WrongSize(path, record.size, found.size);
  for (size_t i = 0; i < record.blocks.size(); ++i) {
    if (found.blocks[i] == record.blocks[i]) continue;
    return absl::DataLossError(
        absl::StrCat(path, ": bytes ", i * files::kHashedBlock, " to ",
                     std::min<uint64_t>((i + 1) * files::kHashedBlock, record.size),
                     ": expected the hash ", record.blocks[i], ", found ", found.blocks[i]));
  }
  if (found.hash != record.hash) {
    return absl::DataLossError(
        absl::StrCat(path, ": expected the hash ", record.hash, ", found ", found.hash));
  }
  return absl::OkStatus();
}

using PiecesByFile = std::map<std::string, std::vector<const Piece*>>;

PiecesByFile ByFile(const std::vector<Piece>& pieces) {
  PiecesByFile by_file;
  for (const Piece& piece : pieces) by_file[piece.file].push_back(&piece);
  return by_file;
}

// Checks the header of a file against the pieces that should be in the file.
absl::Status CheckHeader(const std::string& path, const std::vector<const Piece*>& pieces) {
  ASSIGN_OR_RETURN(const safetensors::File opened, safetensors::File::Open(path));
  for (const Piece* const each : pieces) {
    const Piece& piece = *each;
    const std::string entry_name = EntryName(piece);
    const safetensors::Entry* entry = opened.Find(entry_name);
    const std::vector<int64_t> expected = {piece.end - piece.begin};
    if (entry == nullptr) {
      return absl::DataLossError(absl::StrCat(path, ": no entry '", entry_name, "'"));
    }
    if (safetensors::Name(entry->dtype) != piece.dtype || entry->shape != expected) {
      return absl::DataLossError(absl::StrCat(path, ": entry '", entry_name, "': expected ",
                                              piece.dtype, " ", safetensors::ShapeString(expected),
                                              ", found ", safetensors::Name(entry->dtype), " ",
                                              safetensors::ShapeString(entry->shape)));
    }
    const auto offset = static_cast<int64_t>(opened.header().data_offset + entry->begin);
    if (piece.offset != offset) {
      return absl::DataLossError(absl::StrCat(path, ": entry '", entry_name,
                                              "': expected it at byte ", piece.offset,
                                              ", found it at ", offset));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSize(const std::string& path, uint64_t expected) {
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) return files::ErrnoStatus(errno, "open", path);
  // Something else in place of the file does not count as damage.
  if (!S_ISREG(found.st_mode)) {
    return files::ErrnoStatus(S_ISDIR(found.st_mode) ? EISDIR : EINVAL, "read", path);
  }
  const auto size = static_cast<uint64_t>(found.st_size);
  return size == expected ? absl::OkStatus() : WrongSize(path, expected, size);
}

// Calls `check` for each file.
template <typename Check>
absl::Status ForEachFile(const std::string& directory, const Manifest& manifest,
                         const Check& check) {
  Faults faults;
  for (const FileRecord& record : manifest.files) {
    faults.Add(check(files::JoinPath(directory, record.name), record));
  }
  return faults.ToStatus();
}

}  // namespace

absl::Status CheckFiles(const std::string& directory, const Manifest& manifest) {
  return ForEachFile(directory, manifest, [](const std::string& path, const FileRecord& record) {
    return CheckSize(path, record.size);
  });
}

absl::StatusOr<Manifest> Verify(const std::string& directory) {
  ASSIGN_OR_RETURN(Manifest manifest, Read(directory));
  RETURN_IF_ERROR(Annotate(CheckComplete(manifest), directory));
  PiecesByFile pieces = ByFile(manifest.pieces);
  RETURN_IF_ERROR(ForEachFile(
      directory, manifest, [&](const std::string& path, const FileRecord& record) -> absl::Status {
        RETURN_IF_ERROR(CheckContents(path, record));
        return CheckHeader(path, pieces[record.name]);
      }));
  return manifest;
}

}  // namespace muster::manifest
