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

std::string EntryName(const StateTensor& item) { return item.slot + "/" + item.parameter; }

}  // namespace

std::string ShardName(int64_t rank) { return absl::StrCat("rank-", rank, ".safetensors"); }

absl::Status CheckState(const State& state) {
  std::set<std::string> names;
  for (const StateTensor& item : state) {
    const at::Tensor& tensor = item.tensor;
    if (!tensor.defined() || tensor.scalar_type() != at::kFloat || !tensor.is_contiguous() ||
        !tensor.device().is_cpu()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "state ", EntryName(item), ": expected a contiguous float32 tensor on the CPU"));
    }
    if (!names.insert(EntryName(item)).second) {
      return absl::InvalidArgumentError(absl::StrCat("state ", EntryName(item), " is there twice"));
    }
  }
  return absl::OkStatus();
}

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
                        ShardName(static_cast<int64_t>(rank))});
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
    entries.push_back(
        {EntryName(state[cut.tensor]), safetensors::DType::kF32, {cut.end - cut.begin}});
  }
  ASSIGN_OR_RETURN(const safetensors::FilePlan plan,
                   safetensors::Plan(std::move(entries), {{"format", "pt"}}));
  const std::string name = ShardName(rank);
  ASSIGN_OR_RETURN(const auto writer,
                   files::HashingWriter::Create(files::JoinPath(directory, name), disk));
  RETURN_IF_ERROR(writer->Append(plan.prefix.data(), plan.prefix.size()));
  for (const Cut& cut : cuts) {
    const float* data = state[cut.tensor].tensor.const_data_ptr<float>();
    RETURN_IF_ERROR(writer->Append(data + cut.begin, (cut.end - cut.begin) * sizeof(float)));
  }
  ASSIGN_OR_RETURN(const files::FileDigest digest, writer->Finish());
  return manifest::FileRecord{name, digest.size, digest.hash};
}

}  // namespace muster::checkpoint
