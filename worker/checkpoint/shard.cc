#include "worker/checkpoint/shard.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c10/core/Device.h"
#include "common/files/files.h"
#include "common/files/hashing_writer.h"
#include "common/problems/problems.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"
#include "worker/device/event.h"
#include "worker/device/memory.h"

namespace muster::checkpoint {
namespace {

using safetensors::DType;
using sharding::Range;

// The size up to which pieces come first in a file. Every rank needs the small pieces of replicated
// items (the number of steps of each parameter). Together they lie in one block, which every rank
// reads.
constexpr int64_t kFewElements = 1024;

// The DType of a type that CheckState accepts.
DType DTypeOf(at::ScalarType type) { return type == at::kLong ? DType::kI64 : DType::kF32; }

// The piece of each item that this rank holds, or null.
std::vector<const HeldPiece*> HeldByItem(const State& state) {
  std::vector<const HeldPiece*> held(state.items.size());
  for (const HeldPiece& piece : state.held) held[piece.item] = &piece;
  return held;
}

// The elements of a range that lie in this piece.
at::Tensor ElementsOf(const HeldPiece& piece, const Range& range) {
  return piece.tensor.detach().view({-1}).narrow(0, range.begin - piece.begin,
                                                 range.end - range.begin);
}

// INVALID_ARGUMENT unless `part` consists of known items, each at most once, and held by this rank.
absl::Status CheckHeld(const State& state, int64_t rank, const std::vector<Range>& part) {
  const std::vector<const HeldPiece*> held = HeldByItem(state);
  Problems problems;
  for (const Range& range : part) {
    if (range.begin == range.end) continue;
    const HeldPiece* piece = held[range.parameter];
    const int64_t begin = piece == nullptr ? 0 : piece->begin;
    const int64_t end = piece == nullptr ? 0 : begin + piece->tensor.numel();
    if (piece != nullptr && begin <= range.begin && range.end <= end) continue;
    problems.Add(absl::StrCat(
        Name(state.items[range.parameter]), ": writes elements [", range.begin, ", ", range.end,
        ") but holds ", piece == nullptr ? "none" : absl::StrCat("[", begin, ", ", end, ")")));
  }
  return problems.ToStatus(absl::StatusCode::kInvalidArgument,
                           absl::StrCat("state of rank ", rank));
}

// The plan of the file with these entries.
absl::StatusOr<safetensors::FilePlan> PlanShard(const State& state,
                                                const std::vector<Range>& part) {
  std::vector<safetensors::Entry> entries;
  for (const Range& range : part) {
    const StateItem& item = state.items[range.parameter];
    entries.push_back({Name(item), DTypeOf(item.type), {range.end - range.begin}});
  }
  return safetensors::Plan(std::move(entries), {{"format", "pt"}});
}

}  // namespace

std::string ShardName(int64_t rank) { return absl::StrCat("rank-", rank, ".safetensors"); }

std::string DTypeName(at::ScalarType type) { return safetensors::Name(DTypeOf(type)); }

absl::Status CheckWritable(const State& state, int64_t rank, int64_t world_size) {
  RETURN_IF_ERROR(CheckState(state));
  const sharding::Placement& written = state.written;
  if (static_cast<int64_t>(written.holders.size()) != world_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "state: expected ", world_size, " ranks that write it, found ", written.holders.size()));
  }
  std::vector<std::string> names;
  std::vector<int64_t> elements;
  for (const StateItem& item : state.items) {
    names.push_back(Name(item));
    elements.push_back(Elements(item));
  }
  if (written.elements != elements) {
    return absl::InvalidArgumentError(
        "state: the sizes of what the ranks write are not those of the items");
  }
  const absl::Status complete = sharding::CheckComplete(written, names);
  if (!complete.ok()) {
    // The error is not DATA_LOSS, which would mean that a checkpoint is damaged.
    return absl::InvalidArgumentError(
        absl::StrCat("state: some elements do not have exactly one writer: ", complete.message()));
  }
  std::vector<size_t> last_writer(state.items.size(), written.holders.size());
  for (size_t writer = 0; writer < written.holders.size(); ++writer) {
    for (const Range& range : written.holders[writer]) {
      if (std::exchange(last_writer[range.parameter], writer) == writer) {
        return absl::InvalidArgumentError(absl::StrCat("state ", names[range.parameter], ": rank ",
                                                       writer, " writes two pieces of it"));
      }
    }
  }
  return CheckHeld(state, rank, written.holders[rank]);
}

std::vector<std::vector<Range>> PartsByRank(const State& state) {
  std::vector<std::vector<Range>> parts = state.written.holders;
  std::vector<size_t> first_writer(state.items.size());
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    for (const Range& range : parts[rank]) {
      if (range.begin == 0) first_writer[range.parameter] = rank;
    }
  }
  size_t writer = parts.size() - 1;
  for (size_t item = state.items.size(); item-- > 0;) {
    if (Elements(state.items[item]) > 0) {
      writer = first_writer[item];
    } else {
      parts[writer].push_back({.parameter = static_cast<int64_t>(item)});
    }
  }
  const auto key = [](const Range& range) {
    return std::pair(range.end - range.begin > kFewElements, range.parameter);
  };
  for (std::vector<Range>& part : parts) {
    std::sort(part.begin(), part.end(),
              [&key](const Range& a, const Range& b) { return key(a) < key(b); });
  }
  return parts;
}

absl::StatusOr<std::vector<manifest::Piece>> Pieces(const State& state,
                                                    const std::vector<std::vector<Range>>& parts) {
  std::vector<manifest::Piece> pieces;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    ASSIGN_OR_RETURN(const safetensors::FilePlan plan, PlanShard(state, parts[rank]));
    for (size_t i = 0; i < parts[rank].size(); ++i) {
      const Range& range = parts[rank][i];
      const StateItem& item = state.items[range.parameter];
      pieces.push_back({item.slot, item.parameter, item.shape, range.begin, range.end,
                        ShardName(static_cast<int64_t>(rank)), DTypeName(item.type),
                        static_cast<int64_t>(plan.prefix.size() + plan.entries[i].begin)});
    }
  }
  return pieces;
}

absl::StatusOr<manifest::FileRecord> WriteShard(const std::string& directory, int64_t rank,
                                                const std::vector<Range>& part, const State& state,
                                                files::Disk& disk) {
  RETURN_IF_ERROR(CheckState(state));
  RETURN_IF_ERROR(CheckHeld(state, rank, part));
  ASSIGN_OR_RETURN(const safetensors::FilePlan plan, PlanShard(state, part));
  const std::string name = ShardName(rank);
  ASSIGN_OR_RETURN(const auto writer,
                   files::HashingWriter::Create(files::JoinPath(directory, name), disk));
  RETURN_IF_ERROR(writer->Append(plan.prefix.data(), plan.prefix.size()));
  const std::vector<const HeldPiece*> held = HeldByItem(state);
  for (const Range& range : part) {
    if (range.begin == range.end) continue;
    const at::Tensor elements = device::On(at::kCPU, ElementsOf(*held[range.parameter], range));
    RETURN_IF_ERROR(writer->Append(elements.const_data_ptr(), elements.nbytes()));
  }
  ASSIGN_OR_RETURN(files::FileDigest digest, writer->Finish());
  return manifest::FileRecord{name, digest.size, digest.hash, std::move(digest.blocks)};
}

State Snapshot(const State& state, int rank) {
  const std::vector<const HeldPiece*> held = HeldByItem(state);
  State copy{.items = state.items, .written = state.written, .held = {}};
  std::optional<c10::Device> device;
  for (const Range& range : state.written.holders[rank]) {
    const HeldPiece* const piece = held[range.parameter];
    if (piece == nullptr || range.begin < piece->begin ||
        range.end > piece->begin + piece->tensor.numel()) {
      continue;
    }
    const at::Tensor part = ElementsOf(*piece, range);
    at::Tensor own = device::HostLike(part);
    device::CopyAll(own, part);
    if (!part.is_cpu()) device = part.device();
    copy.held.push_back({static_cast<size_t>(range.parameter), range.begin, std::move(own)});
  }
  if (device.has_value()) device::Event::Now(*device).Await();
  return copy;
}

int64_t BytesWritten(const State& state, int rank) {
  int64_t bytes = 0;
  for (const Range& range : state.written.holders[rank]) {
    bytes += (range.end - range.begin) * c10::elementSize(state.items[range.parameter].type);
  }
  return bytes;
}

}  // namespace muster::checkpoint
