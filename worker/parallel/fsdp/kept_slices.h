// What a plan of FSDP takes over of the slices of the plan before it.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_KEPT_SLICES_H_
#define MUSTER_WORKER_PARALLEL_FSDP_KEPT_SLICES_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "worker/parallel/fsdp/unit_groups.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

struct KeptSlices {
  // A rank's slices of the groups, those of the trained ones first: where what is kept lies as it
  // should, that, else memory that is to be filled. Undefined ones where nothing is kept.
  std::vector<at::Tensor> slices;
  // What they lie in, as KeptMemory's.
  std::vector<at::Tensor> flats;
};

// Of rank `rank`. kept: of the plan before; a group that was trained and is frozen now may take
// over the same memory, and the other way round.
KeptSlices TakeOverSlices(const UnitGroups& trainable, const UnitGroups& frozen, int rank,
                          int world_size, const KeptMemory& kept);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_KEPT_SLICES_H_
