#include "worker/parallel/fsdp/unit_slices.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/parallel/fsdp/flat_group.h"
#include "worker/parallel/fsdp/kept_slices.h"

namespace muster::parallel {

UnitSlices MakeUnitSlices(const std::vector<models::Parameter>& parameters,
                          const std::vector<PlannedUnit>& plan, const UnitGroups& trainable,
                          const UnitGroups& frozen, const FsdpOptions& options,
                          comm::Communicator* communicator, const KeptMemory& kept) {
  std::vector<std::string> names;
  for (const PlannedUnit& unit : plan) names.push_back(unit.unit->name());
  KeptSlices taken =
      TakeOverSlices(trainable, frozen, communicator->rank(), communicator->world_size(), kept);
  UnitSlices made{.whole = std::make_unique<WholeUnits>(std::move(names), options.trace),
                  .flats = std::move(taken.flats)};
  // given: the slice of each group; undefined: there is no memory for it yet.
  const auto make = [&](const UnitGroups& kind, const at::Tensor* given, const char* what,
                        bool resident) {
    std::vector<Slice> slices;
    for (size_t i = 0; i < kind.groups.size(); ++i) {
      auto group = std::make_unique<FlatGroup>(
          parameters, kind.indices, kind.specs, kind.groups[i],
          FlatGroup::Options{.resident = resident,
                             .in_bfloat16 = options.parameters_in_bfloat16,
                             .values = options.values,
                             .slice = given[i]},
          communicator, absl::StrCat(what, Who(plan, kind.units[i])));
      slices.push_back({.parameters = group->slice()});
      if (!given[i].defined()) made.flats.push_back(group->slice());
      made.whole->AddGroup(kind.units[i], std::move(group));
    }
    return slices;
  };
  made.trainable = make(trainable, taken.slices.data(), "parameters of ", /*resident=*/false);
  made.frozen = make(frozen, taken.slices.data() + trainable.groups.size(), "frozen parameters of ",
                     options.frozen_resident);
  return made;
}

}  // namespace muster::parallel
