// Which rank holds which elements under FSDP. Pure.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_PLACEMENT_H_
#define MUSTER_WORKER_PARALLEL_FSDP_PLACEMENT_H_

#include <vector>

#include "worker/models/unit.h"
#include "worker/parallel/fsdp/unit_groups.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

// The placements of a plan of `parameters` that has these groups.
Placements PlacementsOf(const std::vector<models::Parameter>& parameters,
                        const UnitGroups& trainable, const UnitGroups& frozen, int world_size);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_PLACEMENT_H_
