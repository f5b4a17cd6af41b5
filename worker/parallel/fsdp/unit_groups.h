// The memory layout of FSDP: the parameters of each planned unit lie in flat groups. Pure.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_UNIT_GROUPS_H_
#define MUSTER_WORKER_PARALLEL_FSDP_UNIT_GROUPS_H_

#include <cstddef>
#include <vector>

#include "worker/layout/groups.h"
#include "worker/models/unit.h"
#include "worker/parallel/fsdp/unit_plan.h"

namespace muster::parallel {

enum class GroupKind { kTrainable, kFrozen };

// All groups of one kind.
struct UnitGroups {
  std::vector<size_t> indices;               // the model's parameters of this kind
  std::vector<layout::ParameterSpec> specs;  // their descriptions
  // The members are indices of specs. There is one group for each unit and type with parameters of
  // this kind. The group of the last unit comes first, because backward completes it first; that of
  // the root comes last, because its parameters are used at both ends of the forward.
  std::vector<layout::Group> groups;
  std::vector<size_t> units;  // the unit of each group: its index in the plan
};

// parameters: those that the plan was made of. Parameters that are not `trained` must be float32,
// float64 or int64.
UnitGroups GroupByUnit(const std::vector<models::Parameter>& parameters,
                       const std::vector<bool>& trained, const std::vector<PlannedUnit>& plan,
                       GroupKind kind, int world_size);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_UNIT_GROUPS_H_
