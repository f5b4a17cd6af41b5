#include "client/checkpoints/reshard.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/checkpoints/new_folder.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/files/hash.h"
#include "common/files/hashing_writer.h"
#include "common/manifest/tensor_reader.h"
#include "common/safetensors/safetensors.h"
#include "common/sharding/placement.h"
#include "common/status/status.h"

namespace muster::checkpoints {
namespace {

using manifest::StoredTensor;
using manifest::TensorReader;
using sharding::Range;

// The number of elements of a small tensor. Small tensors come first, as in a worker's checkpoints
// (docs/reference/checkpoint-format.md).
constexpr int64_t kSmall = 1024;
constexpr int64_t kAlignment = 16;

// The ranges of each tensor in each file, by number.
std::vector<std::vector<Range>> Divide(const std::vector<StoredTensor>& tensors, int files) {
  std::vector<int64_t> elements;
  for (const StoredTensor& tensor : tensors) elements.push_back(tensor.elements);
  auto parts = sharding::CutEvenly(elements, files, kAlignment).holders;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (elements[i] == 0) parts[0].push_back({.parameter = static_cast<int64_t>(i)});
  }
  for (std::vector<Range>& part : parts) {
    std::stable_partition(part.begin(), part.end(),
                          [](const Range& range) { return range.end - range.begin <= kSmall; });
  }
  return parts;
}

absl::Status WriteFile(TensorReader& reader, const std::vector<Range>& part,
                       const std::string& name, const std::string& folder,
                       manifest::Manifest* manifest) {
  std::vector<safetensors::Entry> entries;
  std::vector<manifest::Piece> pieces;
  for (const Range& range : part) {
    const StoredTensor& tensor = reader.tensors()[range.parameter];
    entries.push_back(
        {tensor.name(), *safetensors::DTypeOf(tensor.dtype), {range.end - range.begin}});
    pieces.push_back({.slot = tensor.slot,
                      .parameter = tensor.parameter,
                      .shape = tensor.shape,
                      .begin = range.begin,
                      .end = range.end,
                      .file = name,
                      .dtype = tensor.dtype});
  }
  ASSIGN_OR_RETURN(const safetensors::FilePlan plan, safetensors::Plan(std::move(entries), {}));
  ASSIGN_OR_RETURN(const auto writer, files::HashingWriter::Create(files::JoinPath(folder, name)));
  RETURN_IF_ERROR(writer->Append(plan.prefix.data(), plan.prefix.size()));
  std::vector<char> buffer;
  for (size_t i = 0; i < part.size(); ++i) {
    pieces[i].offset = static_cast<int64_t>(plan.prefix.size() + plan.entries[i].begin);
    const StoredTensor& tensor = reader.tensors()[part[i].parameter];
    const int64_t most = static_cast<int64_t>(files::kHashedBlock) / tensor.element_bytes;
    for (int64_t begin = part[i].begin; begin < part[i].end; begin += most) {
      const int64_t count = std::min(most, part[i].end - begin);
      buffer.resize(count * tensor.element_bytes);
      RETURN_IF_ERROR(reader.Read(tensor, begin, count, buffer.data()));
      RETURN_IF_ERROR(writer->Append(buffer.data(), buffer.size()));
    }
  }
  ASSIGN_OR_RETURN(files::FileDigest digest, writer->Finish());
  manifest->files.push_back({name, digest.size, digest.hash, std::move(digest.blocks)});
  manifest->pieces.insert(manifest->pieces.end(), pieces.begin(), pieces.end());
  return absl::OkStatus();
}

absl::Status CheckFree(const std::string& out) {
  std::error_code error;
  const auto found = std::filesystem::symlink_status(out, error);
  if (found.type() == std::filesystem::file_type::not_found) return absl::OkStatus();
  if (found.type() == std::filesystem::file_type::directory &&
      std::filesystem::is_empty(out, error)) {
    return absl::OkStatus();
  }
  return absl::AlreadyExistsError(absl::StrCat(out, ": exists and is no empty folder"));
}

}  // namespace

absl::StatusOr<manifest::Manifest> Reshard(const std::string& directory, const std::string& out,
                                           int files) {
  RETURN_IF_ERROR(CheckFree(out));
  ASSIGN_OR_RETURN(TensorReader reader, TensorReader::Open(directory));
  manifest::Manifest manifest = reader.manifest();
  manifest.files.clear();
  manifest.pieces.clear();
  ASSIGN_OR_RETURN(const NewFolder folder, NewFolder::Create(out));
  const auto parts = Divide(reader.tensors(), files);
  for (size_t i = 0; i < parts.size(); ++i) {
    RETURN_IF_ERROR(WriteFile(reader, parts[i], absl::StrCat("rank-", i, ".safetensors"),
                              folder.temporary(), &manifest));
  }
  RETURN_IF_ERROR(manifest::Write(manifest, folder.temporary()));
  RETURN_IF_ERROR(files::Disk::Real().SyncDirectory(folder.temporary()));
  RETURN_IF_ERROR(CheckFree(out));
  RETURN_IF_ERROR(files::RenameDurably(folder.temporary(), out));
  return manifest;
}

}  // namespace muster::checkpoints
