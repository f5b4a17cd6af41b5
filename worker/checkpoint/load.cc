#include "worker/checkpoint/load.h"

#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "worker/checkpoint/shard.h"

namespace muster::checkpoint {

using safetensors::ShapeString;

absl::StatusOr<VerifiedCheckpoint> VerifiedCheckpoint::Open(const std::string& directory) {
  ASSIGN_OR_RETURN(manifest::Manifest manifest, manifest::Verify(directory));
  std::map<std::string, safetensors::File> files;
  for (const manifest::FileRecord& record : manifest.files) {
    ASSIGN_OR_RETURN(safetensors::File file,
                     safetensors::File::Open(files::JoinPath(directory, record.name)));
    files.emplace(record.name, std::move(file));
  }
  return VerifiedCheckpoint(std::move(manifest), std::move(files));
}

VerifiedCheckpoint::VerifiedCheckpoint(manifest::Manifest manifest,
                                       std::map<std::string, safetensors::File> files)
    : manifest_(std::move(manifest)), files_(std::move(files)) {}

absl::Status VerifiedCheckpoint::CheckFits(const State& state, Surplus surplus) const {
  RETURN_IF_ERROR(CheckState(state));
  std::map<std::string, const manifest::Piece*> saved;
  for (const manifest::Piece& piece : manifest_.pieces) saved[manifest::EntryName(piece)] = &piece;
  Problems problems;
  for (const StateTensor& item : state) {
    const std::string name = absl::StrCat(item.slot, "/", item.parameter);
    const auto found = saved.find(name);
    if (found == saved.end()) {
      problems.Add(absl::StrCat("no ", name));
      continue;
    }
    const manifest::Piece& piece = *found->second;
    if (item.tensor.sizes() != at::IntArrayRef(piece.shape)) {
      problems.Add(absl::StrCat(name, ": expected ", ShapeString(item.tensor.sizes().vec()),
                                ", found ", ShapeString(piece.shape)));
    } else if (DTypeName(item.tensor) != piece.dtype) {
      problems.Add(absl::StrCat(name, ": expected ", DTypeName(item.tensor), ", found ", piece.dtype));
    }
    saved.erase(found);
  }
  if (surplus == Surplus::kRefuse) {
    for (const auto& [name, piece] : saved) problems.Add(absl::StrCat("unexpected ", name));
  }
  return problems.ToStatus(absl::StatusCode::kFailedPrecondition,
                           absl::StrCat("checkpoint of step ", manifest_.step, " (model ",
                                        manifest_.model_kind, ") does not fit"));
}

void VerifiedCheckpoint::CopyTo(const State& state) const {
  std::map<std::string, const at::Tensor*> targets;
  for (const StateTensor& item : state) {
    targets[absl::StrCat(item.slot, "/", item.parameter)] = &item.tensor;
  }
  for (const manifest::Piece& piece : manifest_.pieces) {
    const std::string name = manifest::EntryName(piece);
    const auto target = targets.find(name);
    if (target == targets.end() || piece.begin == piece.end) continue;
    const safetensors::File& file = files_.at(piece.file);
    const int64_t size = target->second->element_size();
    std::memcpy(static_cast<char*>(target->second->mutable_data_ptr()) + piece.begin * size,
                file.data(*file.Find(name)), (piece.end - piece.begin) * size);
  }
}

absl::StatusOr<manifest::Manifest> Load(const std::string& directory, const State& state,
                                        Surplus surplus) {
  ASSIGN_OR_RETURN(const VerifiedCheckpoint checkpoint, VerifiedCheckpoint::Open(directory));
  RETURN_IF_ERROR(Annotate(checkpoint.CheckFits(state, surplus), directory));
  checkpoint.CopyTo(state);
  return checkpoint.manifest();
}

}  // namespace muster::checkpoint
