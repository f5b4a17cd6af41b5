#include "worker/parallel/in_place.h"

#include <unordered_map>

#include "ATen/ops/empty.h"
#include "c10/core/GradMode.h"
#include "worker/device/memory.h"

namespace muster::parallel {
namespace {

constexpr int64_t kNowhere = -1;

// The flat of each tensor, and the tensors of each flat.
struct Residents {
  std::vector<int64_t> flat_of;               // by tensor: index of its flat, or kNowhere
  std::vector<std::vector<size_t>> of_flats;  // by flat: the tensors in it
};

Residents ResidentsOf(const std::vector<at::Tensor>& flats,
                      const std::vector<at::Tensor>& tensors) {
  std::unordered_map<const void*, int64_t> index;
  for (size_t i = 0; i < flats.size(); ++i) {
    index[flats[i].storage().unsafeGetStorageImpl()] = static_cast<int64_t>(i);
  }
  Residents residents{.flat_of = {}, .of_flats = std::vector<std::vector<size_t>>(flats.size())};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto found = tensors[i].numel() == 0
                           ? index.end()
                           : index.find(tensors[i].storage().unsafeGetStorageImpl());
    residents.flat_of.push_back(found == index.end() ? kNowhere : found->second);
    if (found != index.end()) residents.of_flats[found->second].push_back(i);
  }
  return residents;
}

// The flat and the offset at which a group could stay.
struct Place {
  int64_t flat = kNowhere;  // kNowhere: the group cannot stay
  int64_t begin = 0;
};

Place PlaceOf(const WantedGroup& group, const std::vector<at::Tensor>& tensors,
              const Residents& residents) {
  Place place;
  for (const WantedGroup::Member& member : group.members) {
    if (member.elements == 0) continue;
    if (member.tensor < 0) return {};
    const at::Tensor& tensor = tensors[member.tensor];
    const Place own{residents.flat_of[member.tensor], tensor.storage_offset() - member.offset};
    if (own.flat == kNowhere || tensor.numel() != member.elements) return {};
    if (place.flat == kNowhere) place = own;
    if (own.flat != place.flat || own.begin != place.begin) return {};
  }
  return place;
}

// Returns whether only the group's members lie in the memory of the group, including its padding.
bool IsFree(const WantedGroup& group, const Place& place, const at::Tensor& flat,
            const std::vector<at::Tensor>& tensors, const std::vector<size_t>& residents) {
  const int64_t end = place.begin + group.elements;
  if (flat.scalar_type() != group.type || place.begin < 0 || end > flat.numel()) return false;
  size_t within = 0;
  for (const size_t resident : residents) {
    const int64_t offset = tensors[resident].storage_offset();
    within += offset < end && offset + tensors[resident].numel() > place.begin;
  }
  size_t members = 0;
  for (const WantedGroup::Member& member : group.members) members += member.elements > 0;
  return within == members;
}

}  // namespace

InPlace FindInPlace(const std::vector<at::Tensor>& flats, const std::vector<at::Tensor>& tensors,
                    const std::vector<WantedGroup>& groups, Unwanted unwanted) {
  const Residents residents = ResidentsOf(flats, tensors);
  std::vector<bool> left(flats.size());  // whether a tensor has to leave the flat
  std::vector<bool> wanted(tensors.size());
  std::vector<Place> places;
  for (const WantedGroup& group : groups) {
    Place place = PlaceOf(group, tensors, residents);
    if (place.flat != kNowhere &&
        !IsFree(group, place, flats[place.flat], tensors, residents.of_flats[place.flat])) {
      place = {};
    }
    for (const WantedGroup::Member& member : group.members) {
      if (member.tensor < 0) continue;
      wanted[member.tensor] = true;
      const int64_t flat = residents.flat_of[member.tensor];
      if (flat != kNowhere && place.flat == kNowhere) left[flat] = true;
    }
    places.push_back(place);
  }
  for (size_t i = 0; i < tensors.size() && unwanted == Unwanted::kLeaves; ++i) {
    if (!wanted[i] && residents.flat_of[i] != kNowhere) left[residents.flat_of[i]] = true;
  }

  InPlace result;
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto& [flat, begin] = places[i];
    result.groups.push_back(flat == kNowhere || left[flat]
                                ? at::Tensor()
                                : flats[flat].narrow(0, begin, groups[i].elements));
  }
  for (size_t i = 0; i < flats.size(); ++i) {
    if (!left[i] && !residents.of_flats[i].empty()) result.flats.push_back(flats[i]);
  }
  for (size_t i = 0; i < tensors.size() && unwanted == Unwanted::kStays; ++i) {
    const int64_t flat = residents.flat_of[i];
    if (!wanted[i] && flat != kNowhere && left[flat]) result.displaced.push_back(i);
  }
  return result;
}

at::Tensor NewFlat(const WantedGroup& group) {
  at::Tensor flat = at::empty({group.elements}, at::TensorOptions(group.type).device(group.device));
  const auto clear = [&](int64_t begin, int64_t end) {
    device::ZeroBytes(flat, begin * flat.element_size(), end * flat.element_size());
  };
  int64_t end = 0;
  for (const WantedGroup::Member& member : group.members) {
    clear(end, member.offset);
    end = member.offset + member.elements;
  }
  clear(end, group.elements);
  return flat;
}

void MoveInto(const at::Tensor& flat, const WantedGroup& group,
              const std::vector<at::Tensor>& tensors) {
  const c10::NoGradGuard no_grad;
  for (const WantedGroup::Member& member : group.members) {
    if (member.elements == 0) continue;
    const at::Tensor& tensor = tensors[member.tensor];
    const at::Tensor place = flat.narrow(0, member.offset, member.elements).view(tensor.sizes());
    device::CopyAll(place, tensor);
    tensor.set_data(place);
  }
}

}  // namespace muster::parallel
