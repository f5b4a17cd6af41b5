// The flat groups of a plan of FSDP (flat_group.h), with this rank's slice of each group.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_UNIT_SLICES_H_
#define MUSTER_WORKER_PARALLEL_FSDP_UNIT_SLICES_H_

#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "worker/comm/communicator.h"
#include "worker/models/unit.h"
#include "worker/parallel/fsdp/fsdp_options.h"
#include "worker/parallel/fsdp/unit_plan.h"
#include "worker/parallel/fsdp/whole_units.h"
#include "worker/parallel/slice_pieces.h"
#include "worker/parallel/strategy.h"

namespace muster::parallel {

struct UnitSlices {
  // All groups; no unit is gathered.
  std::unique_ptr<WholeUnits> whole;
  // This rank's slices, in the order of the groups, without gradients.
  std::vector<Slice> trainable;
  std::vector<Slice> frozen;
  // The memory that holds the slices; see KeptMemory::flats.
  std::vector<at::Tensor> flats;
};

// parameters: the list that `plan` was made of. kept: the memory of the plan before. The
// communicator must outlive the result.
UnitSlices MakeUnitSlices(const std::vector<models::Parameter>& parameters,
                          const std::vector<PlannedUnit>& plan, const UnitGroups& trainable,
                          const UnitGroups& frozen, const FsdpOptions& options,
                          comm::Communicator* communicator, const KeptMemory& kept);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_UNIT_SLICES_H_
