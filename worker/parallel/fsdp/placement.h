// Which rank holds what under FSDP. Pure.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_PLACEMENT_H_
#define MUSTER_WORKER_PARALLEL_FSDP_PLACEMENT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/layout/placement.h"
#include "worker/models/unit.h"
#include "worker/parallel/fsdp/unit_groups.h"

namespace muster::parallel {

// Strategy::owners, and shards()->holders.
struct FsdpPlacement {
  layout::Placement owners;
  layout::Placement holders;
};

// Of the groups of a plan of `parameters`.
FsdpPlacement PlacementOf(const std::vector<models::Parameter>& parameters,
                          const UnitGroups& trainable, const UnitGroups& frozen, int world_size);

// Of a strategy that would be made of these parameters. units: FsdpOptions::units. Errors:
// PlanUnits'.
absl::StatusOr<FsdpPlacement> PlacementUnderFsdp(const std::vector<models::Parameter>& parameters,
                                                 const models::Unit& root, int world_size,
                                                 const std::vector<std::string>& units);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_PLACEMENT_H_
