#include "worker/parallel/slice_pieces.h"

#include <algorithm>
#include <utility>

#include "ATen/ops/empty.h"
#include "common/status/status.h"

namespace muster::parallel {

std::vector<Piece> PiecesOf(const std::vector<layout::Group>& groups,
                            const std::vector<layout::ParameterSpec>& specs,
                            const std::vector<size_t>& indices, const std::vector<Slice>& slices,
                            int rank, int world_size) {
  std::vector<Piece> pieces;
  const auto add = [&](size_t parameter, int64_t begin, size_t group, int64_t offset,
                       int64_t elements) {
    const Slice& slice = slices[group];
    Piece piece{.parameter = parameter,
                .begin = begin,
                .tensor = slice.parameters.narrow(0, offset, elements)};
    if (slice.gradients.defined()) {
      piece.tensor.mutable_grad() = slice.gradients.narrow(0, offset, elements);
      piece.bucket = group;
    }
    pieces.push_back(std::move(piece));
  };
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const sharding::Range& range : layout::RangesOf(groups[i], specs, rank, world_size)) {
      add(indices[range.parameter], range.begin, i, range.offset, range.end - range.begin);
    }
    if (rank != 0) continue;
    for (const layout::Group::Member& member : groups[i].members) {
      if (specs[member.parameter].elements == 0) add(indices[member.parameter], 0, i, 0, 0);
    }
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.parameter < b.parameter; });
  return pieces;
}

sharding::Placement OwnersOf(const std::vector<layout::Group>& groups,
                             const std::vector<layout::ParameterSpec>& specs,
                             const std::vector<size_t>& indices, std::vector<int64_t> elements,
                             int world_size) {
  sharding::Placement owners = layout::Sharded(groups, specs, world_size);
  for (auto& ranges : owners.holders) {
    for (sharding::Range& range : ranges) {
      range.parameter = static_cast<int64_t>(indices[range.parameter]);
    }
  }
  owners.elements = std::move(elements);
  return owners;
}

absl::StatusOr<at::Tensor> GatherPieceSums(const at::Tensor& mine, int64_t step,
                                           comm::Communicator* communicator) {
  at::Tensor all = at::empty({communicator->world_size(), mine.numel()}, mine.options());
  RETURN_IF_ERROR(communicator->AllGather(all, mine, {"gradient sums", step})->Wait());
  return all;
}

}  // namespace muster::parallel
