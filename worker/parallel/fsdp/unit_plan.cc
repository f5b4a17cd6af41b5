#include "worker/parallel/fsdp/unit_plan.h"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/glob/glob.h"
#include "common/status/status.h"
#include "worker/models/select_units.h"
#include "worker/parallel/model_tensors.h"

namespace muster::parallel {
namespace {

// Returns for each parameter whether its name matches a pattern.
absl::StatusOr<std::vector<bool>> Matches(const std::vector<models::Parameter>& parameters,
                                          const std::vector<std::string>& patterns) {
  std::vector<bool> matches(parameters.size());
  std::vector<std::string> unfit;
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!GlobMatches(pattern, parameters[i].name)) continue;
      matches[i] = any = true;
    }
    if (!any) unfit.push_back(absl::StrCat("'", pattern, "'"));
  }
  if (unfit.empty()) return matches;
  return absl::InvalidArgumentError(
      absl::StrCat("replicate: no parameter has a name that matches ", absl::StrJoin(unfit, ", ")));
}

}  // namespace

absl::StatusOr<std::vector<PlannedUnit>> PlanUnits(const models::Unit& root,
                                                   const std::vector<models::Parameter>& parameters,
                                                   const std::vector<std::string>& patterns,
                                                   const std::vector<std::string>& replicate) {
  ASSIGN_OR_RETURN(const std::vector<bool> replicated, Matches(parameters, replicate));
  ASSIGN_OR_RETURN(const auto selected, models::SelectUnits(root, patterns));
  const std::unordered_set<const models::Unit*> planned(selected.begin(), selected.end());
  std::unordered_map<const void*, size_t> index_of;
  for (size_t i = 0; i < parameters.size(); ++i) {
    index_of[parameters[i].tensor.unsafeGetTensorImpl()] = i;
  }
  std::vector<PlannedUnit> plan = {{.unit = &root}};
  constexpr size_t kNone = -1;
  std::vector<size_t> owners(parameters.size(), kNone);  // indices in `plan`
  // owner: the index in `plan` of the innermost planned unit around `unit`.
  const std::function<void(const models::Unit&, size_t)> visit = [&](const models::Unit& unit,
                                                                     size_t owner) {
    if (planned.contains(&unit)) {
      owner = plan.size();
      plan.push_back({.unit = &unit});
    }
    for (const auto& parameter : unit.own_parameters()) {
      size_t& known = owners[index_of.at(parameter.tensor.unsafeGetTensorImpl())];
      known = known == kNone || known == owner ? owner : 0;
    }
    for (const auto& child : unit.children()) visit(*child, owner);
  };
  visit(root, 0);
  for (size_t i = 0; i < owners.size(); ++i) {
    plan[replicated[i] ? 0 : owners[i]].parameters.push_back(i);
  }
  // Removes units without parameters of their own: their parameters belong to planned units inside
  // them, or to the root.
  plan.erase(std::remove_if(plan.begin() + 1, plan.end(),
                            [](const PlannedUnit& unit) { return unit.parameters.empty(); }),
             plan.end());
  return plan;
}

std::string Who(const std::vector<PlannedUnit>& plan, size_t unit) {
  return unit == 0 ? "the root" : absl::StrCat("unit '", plan[unit].unit->name(), "'");
}

UnitGroups GroupByUnit(const std::vector<models::Parameter>& parameters,
                       const std::vector<bool>& trained, const std::vector<PlannedUnit>& plan,
                       GroupKind kind, int world_size) {
  UnitGroups result;
  result.specs =
      SpecsOf(parameters, trained, kind == GroupKind::kTrainable, &result.indices);
  for (size_t unit = plan.size(); unit-- > 0;) {
    for (const auto type : {layout::ElementType::kFloat32, layout::ElementType::kFloat64,
                            layout::ElementType::kInt64}) {
      std::vector<int64_t> members;  // indices of specs
      for (const size_t parameter : plan[unit].parameters) {
        const auto found =
            std::lower_bound(result.indices.begin(), result.indices.end(), parameter);
        if (found == result.indices.end() || *found != parameter) continue;  // of the other kind
        const auto index = found - result.indices.begin();
        if (result.specs[index].type == type) members.push_back(index);
      }
      if (members.empty()) continue;
      result.groups.push_back(layout::MakeGroup(result.specs, members, world_size));
      result.units.push_back(unit);
    }
  }
  return result;
}

}  // namespace muster::parallel
