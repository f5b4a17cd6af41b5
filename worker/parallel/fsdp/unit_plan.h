// The units of FSDP: which parameters are gathered together, and the memory layout in which the
// parameters of each unit lie in flat groups. Pure.
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
// below it, without those of other planned units.
struct PlannedUnit {
  const models::Unit* unit = nullptr;
  // Indices of the model's parameters, in forward order; may be empty only for the root.
  std::vector<size_t> parameters;
};

// The root comes first, then the units that SelectUnits names, in forward order. A planned unit may
// lie inside another one: a parameter belongs to the innermost planned unit around it. A parameter
// that several planned units share, or whose name matches one of the patterns in `replicate`
// (common/glob), belongs to the root. parameters: root.Parameters(). Errors: those of SelectUnits;
// INVALID_ARGUMENT, with all such patterns: one of `replicate` matches no parameter.
absl::StatusOr<std::vector<PlannedUnit>> PlanUnits(const models::Unit& root,
                                                   const std::vector<models::Parameter>& parameters,
                                                   const std::vector<std::string>& patterns,
                                                   const std::vector<std::string>& replicate);

// "the root" or "unit 'NAME'", for errors. unit: an index in the plan.
std::string Who(const std::vector<PlannedUnit>& plan, size_t unit);

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

#endif  // MUSTER_WORKER_PARALLEL_FSDP_UNIT_PLAN_H_
