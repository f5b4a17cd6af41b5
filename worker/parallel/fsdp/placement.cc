#include "worker/parallel/fsdp/placement.h"

#include <cstdint>
#include <utility>

#include "worker/parallel/model_tensors.h"
#include "worker/parallel/slice_pieces.h"

namespace muster::parallel {

Placements PlacementsOf(const std::vector<models::Parameter>& parameters,
                        const UnitGroups& trainable, const UnitGroups& frozen, int world_size) {
  const std::vector<int64_t> elements = ElementsOf(parameters);
  const auto owners = [&](const UnitGroups& kind) {
    return OwnersOf(kind.groups, kind.specs, kind.indices, elements, world_size);
  };
  Placements placements{.owners = owners(trainable), .holders = owners(frozen)};
  for (int rank = 0; rank < world_size; ++rank) {
    const auto& owned = placements.owners.holders[rank];
    auto& held = placements.holders->holders[rank];
    held.insert(held.end(), owned.begin(), owned.end());
  }
  return placements;
}

}  // namespace muster::parallel
