#include "worker/parallel/fsdp/placement.h"

#include "common/status/status.h"
#include "worker/parallel/fsdp/unit_plan.h"
#include "worker/parallel/slice_pieces.h"

namespace muster::parallel {

FsdpPlacement PlacementOf(const std::vector<models::Parameter>& parameters,
                          const UnitGroups& trainable, const UnitGroups& frozen, int world_size) {
  std::vector<int64_t> elements;
  for (const auto& [name, tensor] : parameters) elements.push_back(tensor.numel());
  const auto owners = [&](const UnitGroups& kind) {
    return OwnersOf(kind.groups, kind.specs, kind.indices, elements, world_size);
  };
  FsdpPlacement placement{.owners = owners(trainable), .holders = owners(frozen)};
  for (int rank = 0; rank < world_size; ++rank) {
    const auto& owned = placement.owners.holders[rank];
    auto& held = placement.holders.holders[rank];
    held.insert(held.end(), owned.begin(), owned.end());
  }
  return placement;
}

absl::StatusOr<FsdpPlacement> PlacementUnderFsdp(const std::vector<models::Parameter>& parameters,
                                                 const models::Unit& root, int world_size,
                                                 const std::vector<std::string>& units) {
  ASSIGN_OR_RETURN(const auto plan, PlanUnits(root, parameters, units));
  return PlacementOf(parameters, GroupByUnit(parameters, plan, GroupKind::kTrainable, world_size),
                     GroupByUnit(parameters, plan, GroupKind::kFrozen, world_size), world_size);
}

}  // namespace muster::parallel
