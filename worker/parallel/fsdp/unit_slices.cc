#include "worker/parallel/fsdp/unit_slices.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/layout/groups.h"
#include "worker/memory/memory_scope.h"
#include "worker/parallel/fsdp/flat_group.h"
#include "worker/parallel/in_place.h"
#include "worker/parallel/model_tensors.h"

namespace muster::parallel {
namespace {

struct KeptSlices {
  // The rank's slice of each group, trainable groups first. A slice is kept memory if the values
  // already lie at the right offsets, otherwise new memory that has to be filled. All slices are
  // undefined if there is no plan before.
  std::vector<at::Tensor> slices;
  // The memory that holds the slices; see KeptMemory::flats.
  std::vector<at::Tensor> flats;
};

// Returns the slices of rank `rank`. kept: the memory of the plan before. A group may take over the
// memory of a group of the other kind.
KeptSlices TakeOverSlices(const UnitGroups& trainable, const UnitGroups& frozen, int rank,
                          int world_size, const KeptMemory& kept) {
  if (kept.held.empty()) {
    return {std::vector<at::Tensor>(trainable.groups.size() + frozen.groups.size()), {}};
  }
  std::map<std::pair<size_t, int64_t>, int64_t> held;  // index in tensors, by parameter and begin
  std::vector<at::Tensor> tensors;
  for (const Piece& piece : kept.held) {
    held[{piece.parameter, piece.begin}] = static_cast<int64_t>(tensors.size());
    tensors.push_back(piece.tensor);
  }
  std::vector<WantedGroup> wanted;
  for (const UnitGroups* kind : {&trainable, &frozen}) {
    for (const layout::Group& group : kind->groups) {
      wanted.push_back({.members = {},
                        .elements = layout::SliceElements(group, world_size),
                        .type = ScalarTypeOf(group.type),
                        .device = tensors.front().device()});
      for (const sharding::Range& range : layout::RangesOf(group, kind->specs, rank, world_size)) {
        const auto found = held.find({kind->indices[range.parameter], range.begin});
        wanted.back().members.push_back(
            {found == held.end() ? -1 : found->second, range.offset, range.end - range.begin});
      }
    }
  }
  InPlace in_place = FindInPlace(kept.flats, tensors, wanted, Unwanted::kLeaves);
  const memory::MemoryScope scope(memory::Purpose::kParameters);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (in_place.groups[i].defined()) continue;
    in_place.groups[i] = NewFlat(wanted[i]);
    in_place.flats.push_back(in_place.groups[i]);
  }
  return {std::move(in_place.groups), std::move(in_place.flats)};
}

}  // namespace

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
  // given: the slice of each group; undefined: the slice has no memory yet.
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
