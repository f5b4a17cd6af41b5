#include "worker/layout/groups.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace muster::layout {
namespace {

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Calls visit(rank, range) for every range of every slice of `group`, by rising offset in the
// group.
template <typename Visit>
void VisitRanges(const Group& group, const std::vector<ParameterSpec>& specs, int world_size,
                 const Visit& visit) {
  const int64_t slice = SliceElements(group, world_size);
  for (const Group::Member& member : group.members) {
    const int64_t elements = specs[member.parameter].elements;
    if (elements == 0) continue;
    int64_t rank = member.offset / slice;
    int64_t offset = member.offset - rank * slice;
    for (int64_t begin = 0; begin < elements; ++rank, offset = 0) {
      const int64_t end = std::min(elements, begin + slice - offset);
      visit(rank, sharding::Range{member.parameter, begin, end, offset});
      begin = end;
    }
  }
}

// The XXH3 hash of a stream of numbers and names. Each number has 8 bytes, the lowest first.
class LittleEndianHash {
 public:
  LittleEndianHash() : state_(XXH3_createState(), XXH3_freeState) {
    XXH3_64bits_reset(state_.get());
  }

  void Add(int64_t number) {
    const uint64_t bits = static_cast<uint64_t>(number);
    std::array<unsigned char, 8> bytes;
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(bits >> (8 * i));
    XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
  }

  // Adds a name after its length, so that different lists of names give different streams.
  void Add(const std::string& name) {
    Add(static_cast<int64_t>(name.size()));
    XXH3_64bits_update(state_.get(), name.data(), name.size());
  }

  uint64_t Digest() const { return XXH3_64bits_digest(state_.get()); }

 private:
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

// The number of a type in fingerprints. It does not depend on the order of the enumerators, which
// may change.
int64_t TypeNumber(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return 1;
    case ElementType::kFloat64:
      return 2;
    case ElementType::kInt64:
      return 3;
  }
  return 0;
}

}  // namespace

int64_t ElementBytes(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return 4;
    case ElementType::kFloat64:
    case ElementType::kInt64:
      return 8;
  }
  return 0;
}

Group MakeGroup(const std::vector<ParameterSpec>& specs, const std::vector<int64_t>& parameters,
                int world_size) {
  Group group;
  group.members.reserve(parameters.size());
  if (!parameters.empty()) group.type = specs[parameters[0]].type;
  for (const int64_t parameter : parameters) {
    group.members.push_back({parameter, group.elements});
    group.elements = RoundUp(group.elements + specs[parameter].elements, kAlignment);
  }
  group.elements = RoundUp(group.elements, kAlignment * world_size);
  return group;
}

std::vector<Group> AssignBuckets(const std::vector<ParameterSpec>& specs, int world_size,
                                 const BucketLimits& limits) {
  struct OpenBucket {
    std::vector<int64_t> parameters;
    int64_t bytes = 0;  // of the gradients alone, so that padding does not move the borders
    bool first = true;
  };
  std::array<OpenBucket, 3> open;  // by type
  std::vector<std::vector<int64_t>> closed;
  const auto close = [&closed](OpenBucket& bucket) {
    closed.push_back(std::move(bucket.parameters));
    bucket = {.first = false};
  };
  for (int64_t parameter = static_cast<int64_t>(specs.size()) - 1; parameter >= 0; --parameter) {
    const ParameterSpec& spec = specs[parameter];
    if (!spec.trainable) continue;
    OpenBucket& bucket = open[static_cast<size_t>(spec.type)];
    bucket.parameters.push_back(parameter);
    bucket.bytes += spec.elements * ElementBytes(spec.type);
    if (bucket.bytes >= (bucket.first ? limits.first_bytes : limits.bytes)) close(bucket);
  }
  for (OpenBucket& bucket : open) {
    if (!bucket.parameters.empty()) close(bucket);
  }
  // A bucket is complete with the gradient of its last parameter. The last, incomplete bucket of a
  // type may be complete long before the last bucket of another type.
  std::sort(closed.begin(), closed.end(),
            [](const auto& a, const auto& b) { return a.back() > b.back(); });
  std::vector<Group> groups;
  groups.reserve(closed.size());
  for (const auto& parameters : closed) groups.push_back(MakeGroup(specs, parameters, world_size));
  return groups;
}

int64_t SliceElements(const Group& group, int world_size) { return group.elements / world_size; }

std::vector<sharding::Range> RangesOf(const Group& group, const std::vector<ParameterSpec>& specs,
                                      int rank, int world_size) {
  const int64_t slice = SliceElements(group, world_size);
  const int64_t slice_begin = rank * slice;
  const int64_t slice_end = slice_begin + slice;
  std::vector<sharding::Range> ranges;
  auto member = std::partition_point(
      group.members.begin(), group.members.end(), [&](const Group::Member& before) {
        return before.offset + specs[before.parameter].elements <= slice_begin;
      });
  for (; member != group.members.end() && member->offset < slice_end; ++member) {
    const int64_t begin = std::max(member->offset, slice_begin);
    const int64_t end = std::min(member->offset + specs[member->parameter].elements, slice_end);
    if (begin == end) continue;  // a parameter without elements
    ranges.push_back({.parameter = member->parameter,
                      .begin = begin - member->offset,
                      .end = end - member->offset,
                      .offset = begin - slice_begin});
  }
  return ranges;
}

sharding::Placement Sharded(const std::vector<Group>& groups,
                            const std::vector<ParameterSpec>& specs, int world_size) {
  sharding::Placement placement;
  placement.elements.reserve(specs.size());
  for (const ParameterSpec& spec : specs) placement.elements.push_back(spec.elements);

  // The ranges are counted first, because growing thousands of vectors costs more than a second
  // pass.
  std::vector<int64_t> counts(world_size, 0);
  for (const Group& group : groups) {
    VisitRanges(group, specs, world_size,
                [&](int64_t rank, const sharding::Range&) { ++counts[rank]; });
  }
  placement.holders.resize(world_size);
  for (int rank = 0; rank < world_size; ++rank) placement.holders[rank].reserve(counts[rank]);

  int64_t base = 0;  // beginning of the group's slice in each rank's storage
  for (const Group& group : groups) {
    VisitRanges(group, specs, world_size, [&](int64_t rank, sharding::Range range) {
      range.offset += base;
      placement.holders[rank].push_back(range);
    });
    base += SliceElements(group, world_size);
  }
  return placement;
}

uint64_t Fingerprint(const std::vector<Group>& groups, const std::vector<ParameterSpec>& specs,
                     int world_size) {
  LittleEndianHash hash;
  hash.Add(specs.size());
  for (const ParameterSpec& spec : specs) {
    hash.Add(spec.name);
    hash.Add(spec.elements);
    hash.Add(TypeNumber(spec.type));
    hash.Add(int64_t{spec.trainable});
  }
  hash.Add(groups.size());
  for (const Group& group : groups) {
    hash.Add(group.members.size());
    for (const Group::Member& member : group.members) {
      hash.Add(member.parameter);
      hash.Add(member.offset);
    }
    hash.Add(group.elements);
    hash.Add(TypeNumber(group.type));
  }
  hash.Add(world_size);
  return hash.Digest();
}

}  // namespace muster::layout
