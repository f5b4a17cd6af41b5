#include "worker/checkpoint/load.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/files/files.h"
#include "common/layout/placement.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "worker/checkpoint/shard.h"
#include "worker/device/memory.h"

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
  std::map<std::string, const manifest::Piece*> saved;
  for (const manifest::Piece& piece : manifest_.pieces) saved[manifest::EntryName(piece)] = &piece;
  Problems problems;
  for (const StateItem& item : state.items) {
    const std::string name = Name(item);
    const auto found = saved.find(name);
    if (found == saved.end()) {
      problems.Add(absl::StrCat("no ", name));
      continue;
    }
    const manifest::Piece& piece = *found->second;
    if (item.shape != piece.shape) {
      problems.Add(absl::StrCat(name, ": expected ", ShapeString(item.shape), ", found ",
                                ShapeString(piece.shape)));
    } else if (DTypeName(item.type) != piece.dtype) {
      problems.Add(
          absl::StrCat(name, ": expected ", DTypeName(item.type), ", found ", piece.dtype));
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

absl::StatusOr<std::vector<VerifiedCheckpoint::Copy>> VerifiedCheckpoint::PlanCopies(
    const State& state, Surplus surplus) const {
  RETURN_IF_ERROR(CheckState(state));
  RETURN_IF_ERROR(CheckFits(state, surplus));

  std::map<std::string, int64_t> items;
  layout::Placement files;
  std::vector<std::string> names;
  for (const StateItem& item : state.items) {
    items[Name(item)] = static_cast<int64_t>(names.size());
    names.push_back(Name(item));
    files.elements.push_back(Elements(item));
  }
  // An entry of a file: the item, and the range of its elements.
  std::map<std::string, int64_t> numbers;  // of files
  for (const manifest::FileRecord& file : manifest_.files)
    numbers.emplace(file.name, numbers.size());
  files.holders.resize(numbers.size());
  std::map<std::pair<int64_t, int64_t>, const manifest::Piece*> pieces;  // by file and item
  for (const manifest::Piece& piece : manifest_.pieces) {
    const auto item = items.find(manifest::EntryName(piece));
    if (item == items.end() || piece.begin == piece.end) continue;
    const int64_t file = numbers.at(piece.file);
    files.holders[file].push_back({item->second, piece.begin, piece.end});
    pieces[{file, item->second}] = &piece;
  }
  layout::Placement mine{files.elements, std::vector<std::vector<layout::Range>>(1)};
  std::vector<const HeldPiece*> held(state.items.size());
  for (const HeldPiece& piece : state.held) {
    held[piece.item] = &piece;
    if (piece.tensor.numel() == 0) continue;
    mine.holders[0].push_back(
        {static_cast<int64_t>(piece.item), piece.begin, piece.begin + piece.tensor.numel()});
  }
  ASSIGN_OR_RETURN(const std::vector<layout::Move> moves, layout::Redistribute(files, mine, names));

  std::vector<Copy> copies;
  copies.reserve(moves.size());
  for (const layout::Move& move : moves) {
    const manifest::Piece& piece = *pieces.at({move.from, move.parameter});
    const safetensors::File& file = files_.at(piece.file);
    const HeldPiece& target = *held[move.parameter];
    const int64_t size = target.tensor.element_size();
    copies.push_back(
        {file.data(*file.Find(names[move.parameter])) + (move.begin - piece.begin) * size,
         target.tensor, (move.begin - target.begin) * size,
         static_cast<size_t>((move.end - move.begin) * size)});
  }
  return copies;
}

void Fill(const std::vector<VerifiedCheckpoint::Copy>& copies) {
  for (const VerifiedCheckpoint::Copy& copy : copies) {
    activity::ByBlocks(copy.bytes, [&](size_t offset, size_t bytes) {
      device::CopyFromHost(copy.to, copy.begin + static_cast<int64_t>(offset), copy.from + offset,
                           static_cast<int64_t>(bytes));
      return true;
    });
  }
}

absl::StatusOr<manifest::Manifest> Load(const std::string& directory, const State& state,
                                        Surplus surplus) {
  ASSIGN_OR_RETURN(const VerifiedCheckpoint checkpoint, VerifiedCheckpoint::Open(directory));
  const auto copies = checkpoint.PlanCopies(state, surplus);
  RETURN_IF_ERROR(Annotate(copies.status(), directory));
  Fill(*copies);
  return checkpoint.manifest();
}

}  // namespace muster::checkpoint
