#include "worker/parallel/fsdp/kept_slices.h"

#include <cstdint>
#include <map>
#include <utility>

#include "worker/layout/groups.h"
#include "worker/memory/memory_scope.h"
#include "worker/parallel/in_place.h"
#include "worker/parallel/model_tensors.h"

namespace muster::parallel {

KeptSlices TakeOverSlices(const UnitGroups& trainable, const UnitGroups& frozen, int rank,
                          int world_size, const KeptMemory& kept) {
  if (kept.held.empty()) {
    return {std::vector<at::Tensor>(trainable.groups.size() + frozen.groups.size()), {}};
  }
  std::map<std::pair<size_t, int64_t>, int64_t> held;  // index in tensors, by parameter and begin
  std::vector<at::Tensor> tensors;
  for (const Piece& piece : kept.held) {
    held[{piece.parameter, piece.begin}] = static_cast<int64_t>(tensors.size());
    tensors.push_back(piece.tensor);
  }
  std::vector<WantedGroup> wanted;
  for (const UnitGroups* kind : {&trainable, &frozen}) {
    for (const layout::Group& group : kind->groups) {
      wanted.push_back({.members = {},
                        .elements = layout::SliceElements(group, world_size),
                        .type = ScalarTypeOf(group.type),
                        .device = tensors.front().device()});
      for (const layout::Range& range : layout::RangesOf(group, kind->specs, rank, world_size)) {
        const auto found = held.find({kind->indices[range.parameter], range.begin});
        wanted.back().members.push_back(
            {found == held.end() ? -1 : found->second, range.offset, range.end - range.begin});
      }
    }
  }
  InPlace in_place = FindInPlace(kept.flats, tensors, wanted, Unwanted::kLeaves);
  const memory::MemoryScope scope(memory::Purpose::kParameters);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (in_place.groups[i].defined()) continue;
    in_place.groups[i] = NewFlat(wanted[i]);
    in_place.flats.push_back(in_place.groups[i]);
  }
  return {std::move(in_place.groups), std::move(in_place.flats)};
}

}  // namespace muster::parallel
