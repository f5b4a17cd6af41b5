// The units of FSDP: which parameters are gathered together, and how the parameters of each unit
// lie in flat groups. Pure.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_UNIT_PLAN_H_
#define MUSTER_WORKER_PARALLEL_FSDP_UNIT_PLAN_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/layout/groups.h"
#include "worker/models/unit.h"

namespace muster::parallel {

// Parameters that are gathered and freed together: those of a unit of the model and of the units
// below, without other planned units.
struct PlannedUnit {
  const models::Unit* unit = nullptr;
  // Indices of the model's parameters, in forward order. Not empty, except for the root.
  std::vector<size_t> parameters;
};

// Plans the units: the root first, then the units that SelectUnits returns, in forward order.
// Planned units may be nested; a parameter belongs to the innermost planned unit. A parameter
// belongs to the root if several planned units share it, or if its name matches a pattern of
// `replicate` (common/glob). parameters: root.Parameters(). Errors: those of SelectUnits;
// INVALID_ARGUMENT if patterns of `replicate` match no parameter, with all these patterns.
absl::StatusOr<std::vector<PlannedUnit>> PlanUnits(const models::Unit& root,
                                                   const std::vector<models::Parameter>& parameters,
                                                   const std::vector<std::string>& patterns,
                                                   const std::vector<std::string>& replicate);

// Returns "the root" or "unit 'NAME'", for errors. unit: an index in the plan.
std::string Who(const std::vector<PlannedUnit>& plan, size_t unit);

enum class GroupKind { kTrainable, kFrozen };

// All groups of one kind.
struct UnitGroups {
  std::vector<size_t> indices;               // the model's parameters of this kind
  std::vector<layout::ParameterSpec> specs;  // their descriptions
  // One group for each unit and type with parameters of this kind; the members are indices of
  // specs. The group of the last unit comes first, because backward completes it first. The root's
  // group comes last, because the root's parameters are used at both ends of the forward.
  std::vector<layout::Group> groups;
  std::vector<size_t> units;  // the unit of each group, as an index in the plan
};

// parameters: the list that the plan was made of. Parameters that are not `trained` must be
// float32, float64 or int64.
UnitGroups GroupByUnit(const std::vector<models::Parameter>& parameters,
                       const std::vector<bool>& trained, const std::vector<PlannedUnit>& plan,
                       GroupKind kind, int world_size);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_UNIT_PLAN_H_
