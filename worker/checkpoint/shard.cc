#include "worker/checkpoint/shard.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/hashing_writer.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"

namespace muster::checkpoint {
namespace {

using safetensors::DType;

std::string EntryName(const StateTensor& item) { return item.slot + "/" + item.parameter; }

// Only for types that CheckState lets through.
DType DTypeOf(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kLong ? DType::kI64 : DType::kF32;
}

}  // namespace

std::string ShardName(int64_t rank) { return absl::StrCat("rank-", rank, ".safetensors"); }

absl::Status CheckState(const State& state) {
  std::set<std::string> names;
  for (const StateTensor& item : state) {
    const at::Tensor& tensor = item.tensor;
    if (!tensor.defined() ||
        (tensor.scalar_type() != at::kFloat && tensor.scalar_type() != at::kLong) ||
        !tensor.is_contiguous() || !tensor.device().is_cpu()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "state ", EntryName(item), ": expected a contiguous float32 or int64 tensor on the CPU"));
    }
    if (!names.insert(EntryName(item)).second) {
      return absl::InvalidArgumentError(absl::StrCat("state ", EntryName(item), " is there twice"));
    }
  }
  return absl::OkStatus();
}

std::string DTypeName(const at::Tensor& tensor) { return safetensors::Name(DTypeOf(tensor)); }

std::vector<std::vector<Cut>> CutState(const State& state, int64_t parts) {
  std::vector<int64_t> elements;
  for (const StateTensor& item : state) elements.push_back(item.tensor.numel());
  return CutEvenly(elements, parts);
}

std::vector<manifest::Piece> Pieces(const State& state, const std::vector<std::vector<Cut>>& cuts) {
  std::vector<manifest::Piece> pieces;
  for (size_t rank = 0; rank < cuts.size(); ++rank) {
    for (const Cut& cut : cuts[rank]) {
      const StateTensor& item = state[cut.tensor];
      pieces.push_back({item.slot, item.parameter, item.tensor.sizes().vec(), cut.begin, cut.end,
                        ShardName(static_cast<int64_t>(rank)), DTypeName(item.tensor)});
    }
  }
  return pieces;
}

absl::StatusOr<manifest::FileRecord> WriteShard(const std::string& directory, int64_t rank,
                                                const std::vector<Cut>& cuts, const State& state,
                                                files::Disk& disk) {
  RETURN_IF_ERROR(CheckState(state));
  std::vector<safetensors::Entry> entries;
  for (const Cut& cut : cuts) {
    const StateTensor& item = state[cut.tensor];
    entries.push_back({EntryName(item), DTypeOf(item.tensor), {cut.end - cut.begin}});
  }
  ASSIGN_OR_RETURN(const safetensors::FilePlan plan,
                   safetensors::Plan(std::move(entries), {{"format", "pt"}}));
  const std::string name = ShardName(rank);
  ASSIGN_OR_RETURN(const auto writer,
                   files::HashingWriter::Create(files::JoinPath(directory, name), disk));
  RETURN_IF_ERROR(writer->Append(plan.prefix.data(), plan.prefix.size()));
  for (const Cut& cut : cuts) {
    const at::Tensor& tensor = state[cut.tensor].tensor;
    const char* data = static_cast<const char*>(tensor.const_data_ptr());
    const int64_t size = tensor.element_size();
    RETURN_IF_ERROR(writer->Append(data + cut.begin * size, (cut.end - cut.begin) * size));
  }
  ASSIGN_OR_RETURN(const files::FileDigest digest, writer->Finish());
  return manifest::FileRecord{name, digest.size, digest.hash};
}

}  // namespace muster::checkpoint
