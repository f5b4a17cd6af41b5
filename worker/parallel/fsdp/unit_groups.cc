#include "worker/parallel/fsdp/unit_groups.h"

#include <algorithm>

#include "worker/parallel/model_tensors.h"

namespace muster::parallel {

UnitGroups GroupByUnit(const std::vector<models::Parameter>& parameters,
                       const std::vector<bool>& trained, const std::vector<PlannedUnit>& plan,
                       GroupKind kind, int world_size) {
  UnitGroups result;
  result.specs = kind == GroupKind::kTrainable
                     ? TrainableSpecs(parameters, trained, &result.indices)
                     : FrozenSpecs(parameters, trained, &result.indices);
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
