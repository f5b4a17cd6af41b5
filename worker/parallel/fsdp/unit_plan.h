// Which parameters are gathered together: the units of FSDP. Pure.
#ifndef MUSTER_WORKER_PARALLEL_FSDP_UNIT_PLAN_H_
#define MUSTER_WORKER_PARALLEL_FSDP_UNIT_PLAN_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/models/unit.h"

namespace muster::parallel {

// Of all that has to be whole at a time: the parameters of a unit of the model and of what lies
// below it, but for those of other planned units.
struct PlannedUnit {
  const models::Unit* unit = nullptr;
  std::vector<size_t>
      parameters;  // indices of the model's parameters, in forward order; may be empty for the root
};

// The root first, then those that SelectUnits names, in forward order. Planned units may lie in
// each other: a parameter is of the innermost one; one that several planned units share is the
// root's. parameters: root.Parameters(). Errors: SelectUnits'.
absl::StatusOr<std::vector<PlannedUnit>> PlanUnits(const models::Unit& root,
                                                   const std::vector<models::Parameter>& parameters,
                                                   const std::vector<std::string>& patterns);

}  // namespace muster::parallel

#endif  // MUSTER_WORKER_PARALLEL_FSDP_UNIT_PLAN_H_
