// What lies where in FSDP: the parameters of each planned unit in flat groups. Pure.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_UNIT_GROUPS_H_
#define MUSTER_WORKER_PARALLEL_FSDP_UNIT_GROUPS_H_

#include <cstddef>
#include <vector>

#include "worker/layout/groups.h"
#include "worker/models/unit.h"
#include "worker/parallel/fsdp/unit_plan.h"

namespace muster::parallel {

enum class GroupKind { kTrainable, kFrozen };

// Those of one kind.
struct UnitGroups {
  std::vector<size_t> indices;               // which of the model's parameters are of this kind
  std::vector<layout::ParameterSpec> specs;  // of them
  // Over specs, one for each unit and type that there are any of. The last unit's first, because
  // backward completes it first; the root's, whose parameters stand at both ends, last.
  std::vector<layout::Group> groups;
  std::vector<size_t> units;  // of each group: index in the plan
};

// parameters: of the model, as the plan has them; those that are not `trained` are float32, float64
// or int64.
UnitGroups GroupByUnit(const std::vector<models::Parameter>& parameters,
                       const std::vector<bool>& trained, const std::vector<PlannedUnit>& plan,
                       GroupKind kind, int world_size);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_UNIT_GROUPS_H_
