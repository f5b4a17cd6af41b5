#include "common/manifest/tensor_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"

namespace muster::manifest {

absl::Status ReadAt(int fd, int64_t offset, char* to, int64_t bytes, const std::string& path) {
  while (bytes > 0) {
    const ssize_t got = pread(fd, to, bytes, offset);
    if (got < 0) {
      if (errno == EINTR) continue;
      return files::ErrnoStatus(errno, "read", path);
    }
    if (got == 0) {
      return absl::DataLossError(
          absl::StrCat(path, ": expected bytes from ", offset, " on, found the end of the file"));
    }
    to += got;
    offset += got;
    bytes -= got;
  }
  return absl::OkStatus();
}

absl::Status CheckBlock(const FileRecord& record, int64_t number, const char* data, int64_t bytes,
                        const std::string& path) {
  const std::string found = files::HashBytes(data, bytes);
  if (found == record.blocks[number]) return absl::OkStatus();
  const int64_t begin = number * static_cast<int64_t>(files::kHashedBlock);
  return absl::DataLossError(absl::StrCat(path, ": bytes ", begin, " to ", begin + bytes,
                                          ": expected the hash ", record.blocks[number], ", found ",
                                          found));
}

namespace {

// The number of blocks in memory. Small tensors lie together in the first block of each file, and
// are requested between large ones.
constexpr size_t kBlocksKept = 8;

}  // namespace

TensorReader::TensorReader(std::string directory, Manifest manifest)
    : directory_(std::move(directory)), manifest_(std::make_unique<Manifest>(std::move(manifest))) {
  for (const FileRecord& file : manifest_->files) files_[file.name] = &file;
}

absl::StatusOr<TensorReader> TensorReader::Open(const std::string& directory) {
  ASSIGN_OR_RETURN(Manifest manifest, manifest::Read(directory));
  RETURN_IF_ERROR(Annotate(CheckComplete(manifest), directory));
  RETURN_IF_ERROR(CheckFiles(directory, manifest));
  TensorReader reader(directory, std::move(manifest));
  RETURN_IF_ERROR(Annotate(reader.FindTensors(), directory));
  return reader;
}

absl::Status TensorReader::FindTensors() {
  for (const Piece& piece : manifest_->pieces) {
    const auto [found, added] =
        by_name_.emplace(std::pair(piece.slot, piece.parameter), tensors_.size());
    if (added) {
      const auto dtype = safetensors::DTypeOf(piece.dtype);
      if (!dtype.has_value()) {
        return absl::DataLossError(absl::StrCat(EntryName(piece), ": has the dtype '", piece.dtype,
                                                "', which does not exist"));
      }
      tensors_.push_back({.slot = piece.slot,
                          .parameter = piece.parameter,
                          .shape = piece.shape,
                          .dtype = piece.dtype,
                          .element_bytes = static_cast<int64_t>(safetensors::ElementSize(*dtype)),
                          .pieces = {}});
    }
    StoredTensor& tensor = tensors_[found->second];
    tensor.elements += piece.end - piece.begin;
    if (piece.begin < piece.end) tensor.pieces.push_back(&piece);
  }
  for (StoredTensor& tensor : tensors_) {
    // CheckComplete compares only whole names of tensors. A hostile manifest can divide a name
    // between slot and parameter in several ways.
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    if (elements != tensor.elements) {
      return absl::DataLossError(absl::StrCat(tensor.name(), ": expected pieces of ", elements,
                                              " elements, found ", tensor.elements));
    }
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const Piece* a, const Piece* b) { return a->begin < b->begin; });
  }
  return absl::OkStatus();
}

const StoredTensor* TensorReader::Find(const std::string& slot,
                                       const std::string& parameter) const {
  const auto found = by_name_.find({slot, parameter});
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

absl::Status TensorReader::Read(const StoredTensor& tensor, int64_t begin, int64_t count,
                                char* to) {
  const int64_t end = begin + count;
  for (const Piece* piece : tensor.pieces) {
    const int64_t from = std::max(begin, piece->begin);
    const int64_t until = std::min(end, piece->end);
    if (from >= until) continue;
    RETURN_IF_ERROR(ReadBytes(
        *files_.at(piece->file), piece->offset + (from - piece->begin) * tensor.element_bytes,
        (until - from) * tensor.element_bytes, to + (from - begin) * tensor.element_bytes));
  }
  return absl::OkStatus();
}

absl::Status TensorReader::ReadBytes(const FileRecord& file, uint64_t offset, uint64_t bytes,
                                     char* to) {
  while (bytes > 0) {
    const uint64_t number = offset / files::kHashedBlock;
    ASSIGN_OR_RETURN(const std::vector<char>* block, BlockOf(file, number));
    const uint64_t begin = offset - number * files::kHashedBlock;
    const uint64_t some = std::min<uint64_t>(bytes, block->size() - begin);
    std::memcpy(to, block->data() + begin, some);
    offset += some;
    to += some;
    bytes -= some;
  }
  return absl::OkStatus();
}

absl::StatusOr<const std::vector<char>*> TensorReader::BlockOf(const FileRecord& file,
                                                               uint64_t number) {
  for (auto it = blocks_.begin(); it != blocks_.end(); ++it) {
    if (it->file != &file || it->number != number) continue;
    blocks_.splice(blocks_.begin(), blocks_, it);
    return &it->bytes;
  }
  const uint64_t begin = number * files::kHashedBlock;
  Block block{&file, number,
              std::vector<char>(std::min<uint64_t>(files::kHashedBlock, file.size - begin))};
  const std::string path = files::JoinPath(directory_, file.name);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return files::ErrnoStatus(errno, "open", path);
  const absl::Status read =
      ReadAt(fd, static_cast<int64_t>(begin), block.bytes.data(), block.bytes.size(), path);
  close(fd);
  RETURN_IF_ERROR(read);
  if (!file.blocks.empty()) {
    RETURN_IF_ERROR(CheckBlock(file, static_cast<int64_t>(number), block.bytes.data(),
                               block.bytes.size(), path));
  }
  if (blocks_.size() == kBlocksKept) blocks_.pop_back();
  blocks_.push_front(std::move(block));
  return &blocks_.front().bytes;
}

}  // namespace muster::manifest
