// Finds which slices of the plan before a plan of FSDP can take over.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_KEPT_SLICES_H_
#define MUSTER_WORKER_PARALLEL_FSDP_KEPT_SLICES_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "worker/parallel/fsdp/unit_groups.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

struct KeptSlices {
  // The rank's slice of each group, trainable groups first: the kept slice if its values already
  // lie as the group wants them, and otherwise new memory that has to be filled. All are undefined
  // if there is no plan before.
  std::vector<at::Tensor> slices;
  // The memory in which they lie, as KeptMemory::flats.
  std::vector<at::Tensor> flats;
};

// The slices of rank `rank`. kept: what the plan before left. A group that was trainable and is
// frozen now may take over the same memory, and the other way round.
KeptSlices TakeOverSlices(const UnitGroups& trainable, const UnitGroups& frozen, int rank,
                          int world_size, const KeptMemory& kept);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_KEPT_SLICES_H_
