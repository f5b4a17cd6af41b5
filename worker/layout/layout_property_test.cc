// Properties of all layouts, checked on random layouts. A failure prints its seed, which reproduces
// the case.
#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/sharding/placement.h"
#include "gtest/gtest.h"
#include "worker/layout/groups.h"

namespace muster::layout {
namespace {

class Dice {
 public:
  explicit Dice(uint32_t seed) : random_(seed) {}
  // A random number from 0 to n - 1.
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % n); }
  bool OneIn(int64_t n) { return Below(n) == 0; }

 private:
  std::mt19937_64 random_;
};

// Returns 0 to 30 parameters, many of them empty, some with `huge` elements; one type or all, any
// mask.
std::vector<ParameterSpec> RandomSpecs(Dice& dice, int64_t huge) {
  std::vector<ParameterSpec> specs(dice.OneIn(10) ? dice.Below(3) : dice.Below(31));
  const bool mixed = dice.OneIn(2);
  const int64_t mask = dice.Below(4);
  const int64_t size = int64_t{16} << dice.Below(8);
  for (size_t i = 0; i < specs.size(); ++i) {
    ParameterSpec& spec = specs[i];
    spec.name = "p" + std::to_string(i);
    spec.elements = dice.OneIn(5) ? 0 : dice.OneIn(20) ? huge + dice.Below(100) : dice.Below(size);
    if (mixed) spec.type = static_cast<ElementType>(dice.Below(3));
    spec.trainable = mask == 0 || (mask == 1 ? i % 2 == 0 : mask == 2 && dice.OneIn(3));
  }
  return specs;
}

BucketLimits RandomLimits(Dice& dice) {
  return {.first_bytes = int64_t{1} << dice.Below(12), .bytes = int64_t{1} << dice.Below(18)};
}

// Returns the trainable parameters in buckets and the frozen ones in a group of each type.
std::vector<Group> GroupsOfAll(const std::vector<ParameterSpec>& specs, int world_size,
                               Dice& dice) {
  std::vector<Group> groups = AssignBuckets(specs, world_size, RandomLimits(dice));
  for (const auto type : {ElementType::kFloat32, ElementType::kFloat64, ElementType::kInt64}) {
    std::vector<int64_t> frozen;
    for (size_t i = 0; i < specs.size(); ++i) {
      if (!specs[i].trainable && specs[i].type == type) frozen.push_back(i);
    }
    groups.push_back(MakeGroup(specs, frozen, world_size));
  }
  return groups;
}

std::vector<int64_t> ElementsOf(const std::vector<ParameterSpec>& specs) {
  std::vector<int64_t> elements;
  for (const ParameterSpec& spec : specs) elements.push_back(spec.elements);
  return elements;
}

// Returns a placement in which all parameters are cut anywhere and dealt out, some of them twice.
// They are stored in any order with gaps.
sharding::Placement Scattered(const std::vector<int64_t>& elements, int64_t holders, Dice& dice) {
  sharding::Placement placement{elements, std::vector<std::vector<sharding::Range>>(holders)};
  std::vector<sharding::Range> pieces;
  for (size_t parameter = 0; parameter < elements.size(); ++parameter) {
    for (int64_t begin = 0; begin < elements[parameter];) {
      const int64_t end = begin + 1 + dice.Below(elements[parameter] - begin);
      pieces.push_back({static_cast<int64_t>(parameter), begin, end});
      begin = end;
    }
  }
  for (size_t i = pieces.size(); i > 1; --i) std::swap(pieces[i - 1], pieces[dice.Below(i)]);
  std::vector<int64_t> stored(holders, 0);
  for (sharding::Range& piece : pieces) {
    const int64_t first = dice.Below(holders);
    std::vector<int64_t> owners = {first};
    if (const int64_t second = dice.Below(holders); second != first && dice.OneIn(4)) {
      owners.push_back(second);
    }
    for (const int64_t holder : owners) {
      piece.offset = stored[holder] += dice.Below(3);
      stored[holder] += piece.end - piece.begin;
      placement.holders[holder].push_back(piece);
    }
  }
  return placement;
}

// Returns a placement of these parameters in which each element has at least one holder.
sharding::Placement RandomPlacement(std::vector<ParameterSpec> specs, Dice& dice) {
  const auto elements = ElementsOf(specs);
  const int64_t holders = 1 + dice.Below(64);
  switch (dice.Below(5)) {
    case 0:
      return sharding::Replicated(elements, 1 + dice.Below(5));
    case 1:
      return sharding::CutEvenly(elements, holders, dice.OneIn(2) ? 16 : 1);
    case 2:
      return Scattered(elements, holders, dice);
    default:
      for (ParameterSpec& spec : specs) spec.trainable = dice.OneIn(2);  // a mask of its own
      return Sharded(GroupsOfAll(specs, holders, dice), specs, holders);
  }
}

TEST(LayoutProperty, EveryElementOfATrainableParameterHasOneOwner) {
  for (uint32_t seed = 0; seed < 1280; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const int world_size = 1 + seed % 64;
    const auto specs = RandomSpecs(dice, /*huge=*/int64_t{1} << dice.Below(42));
    const auto groups = AssignBuckets(specs, world_size, RandomLimits(dice));
    sharding::Placement placement = Sharded(groups, specs, world_size);
    ASSERT_EQ(placement.holders.size(), world_size);

    std::vector<std::vector<sharding::Range>> owned(specs.size());
    for (const auto& ranges : placement.holders) {
      for (const sharding::Range& range : ranges) owned[range.parameter].push_back(range);
    }
    for (size_t parameter = 0; parameter < specs.size(); ++parameter) {
      auto& ranges = owned[parameter];
      std::sort(
          ranges.begin(), ranges.end(),
          [](const sharding::Range& a, const sharding::Range& b) { return a.begin < b.begin; });
      int64_t end = 0;
      for (const sharding::Range& range : ranges) {
        ASSERT_EQ(range.begin, end) << specs[parameter].name;
        ASSERT_GT(range.end, range.begin);
        end = range.end;
      }
      EXPECT_EQ(end, specs[parameter].trainable ? specs[parameter].elements : 0);
    }

    for (size_t i = 0; i < specs.size(); ++i) {
      if (!specs[i].trainable) placement.elements[i] = 0;
    }
    EXPECT_TRUE(sharding::CheckComplete(placement).ok()) << sharding::CheckComplete(placement);
  }
}

TEST(LayoutProperty, SlicesAreEqualAndAligned) {
  for (uint32_t seed = 0; seed < 1280; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const int world_size = 1 + seed % 64;
    const auto specs = RandomSpecs(dice, /*huge=*/int64_t{1} << dice.Below(42));
    const auto groups = GroupsOfAll(specs, world_size, dice);
    const sharding::Placement placement = Sharded(groups, specs, world_size);
    std::vector<std::vector<sharding::Range>> expected(world_size);
    int64_t base = 0;
    for (const Group& group : groups) {
      const int64_t slice = SliceElements(group, world_size);
      EXPECT_EQ(slice * world_size, group.elements);
      EXPECT_EQ(slice % kAlignment, 0);
      for (const auto& member : group.members) {
        EXPECT_EQ(member.offset % kAlignment, 0);
        EXPECT_EQ(specs[member.parameter].type, group.type);
      }
      int64_t contained = 0;
      for (int rank = 0; rank < world_size; ++rank) {
        int64_t end = 0;
        for (sharding::Range range : RangesOf(group, specs, rank, world_size)) {
          ASSERT_GE(range.offset, end);
          end = range.offset + range.end - range.begin;
          ASSERT_LE(end, slice);
          contained += range.end - range.begin;
          range.offset += base;
          expected[rank].push_back(range);
        }
      }
      for (const auto& member : group.members) contained -= specs[member.parameter].elements;
      EXPECT_EQ(contained, 0);
      base += slice;
    }
    EXPECT_EQ(placement.holders, expected);
  }
}

int64_t ValueOf(int64_t parameter, int64_t element) { return parameter << 40 | element; }

// The storage of all holders, -1 in gaps.
using Storage = std::vector<std::vector<int64_t>>;

Storage EmptyStorage(const sharding::Placement& placement) {
  Storage storage(placement.holders.size());
  for (size_t holder = 0; holder < storage.size(); ++holder) {
    int64_t size = 0;
    for (const sharding::Range& range : placement.holders[holder]) {
      size = std::max(size, range.offset + range.end - range.begin);
    }
    storage[holder].resize(size, -1);
  }
  return storage;
}

Storage Fill(const sharding::Placement& placement) {
  Storage storage = EmptyStorage(placement);
  for (size_t holder = 0; holder < storage.size(); ++holder) {
    for (const sharding::Range& range : placement.holders[holder]) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        storage[holder][range.offset + i - range.begin] = ValueOf(range.parameter, i);
      }
    }
  }
  return storage;
}

Storage Apply(const std::vector<sharding::Move>& moves, const Storage& from,
              const sharding::Placement& to) {
  Storage storage = EmptyStorage(to);
  for (const sharding::Move& move : moves) {
    const auto begin = from[move.from].begin() + move.from_offset;
    std::copy(begin, begin + (move.end - move.begin), storage[move.to].begin() + move.to_offset);
  }
  return storage;
}

TEST(LayoutProperty, MovingThereAndBackIsTheIdentity) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const auto specs = RandomSpecs(dice, /*huge=*/dice.OneIn(10) ? 100000 : 5000);
    const sharding::Placement a = RandomPlacement(specs, dice);
    const sharding::Placement b = RandomPlacement(specs, dice);
    const auto there = sharding::Redistribute(a, b);
    ASSERT_TRUE(there.ok()) << there.status();
    const auto back = sharding::Redistribute(b, a);
    ASSERT_TRUE(back.ok()) << back.status();
    const Storage in_a = Fill(a);
    const Storage in_b = Apply(*there, in_a, b);
    ASSERT_EQ(in_b, Fill(b));
    ASSERT_EQ(Apply(*back, in_b, a), in_a);
  }
}

// The case is that after freezing: no rank holds a parameter that is in no group, and no rank needs
// it.
TEST(LayoutProperty, TrainableParametersAloneMoveBetweenWorldSizes) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const auto specs = RandomSpecs(dice, /*huge=*/5000);
    const int m = 1 + dice.Below(64), n = 1 + dice.Below(64);
    const sharding::Placement a = Sharded(AssignBuckets(specs, m, RandomLimits(dice)), specs, m);
    const sharding::Placement b = Sharded(AssignBuckets(specs, n, RandomLimits(dice)), specs, n);
    const auto there = sharding::Redistribute(a, b);
    ASSERT_TRUE(there.ok()) << there.status();
    const auto back = sharding::Redistribute(b, a);
    ASSERT_TRUE(back.ok()) << back.status();
    const Storage in_b = Apply(*there, Fill(a), b);
    ASSERT_EQ(in_b, Fill(b));
    ASSERT_EQ(Apply(*back, in_b, a), Fill(a));
  }
}

TEST(LayoutProperty, ElementsComeFromTheHolderItselfElseFromTheLowest) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const auto specs = RandomSpecs(dice, /*huge=*/2000);
    const sharding::Placement a = RandomPlacement(specs, dice);
    const sharding::Placement b = RandomPlacement(specs, dice);
    std::vector<std::vector<std::vector<int64_t>>> holders(
        specs.size());  // by parameter and element
    for (size_t i = 0; i < specs.size(); ++i) holders[i].resize(specs[i].elements);
    for (size_t holder = 0; holder < a.holders.size(); ++holder) {
      for (const sharding::Range& range : a.holders[holder]) {
        for (int64_t i = range.begin; i < range.end; ++i) {
          holders[range.parameter][i].push_back(holder);
        }
      }
    }
    const auto moves = sharding::Redistribute(a, b);
    ASSERT_TRUE(moves.ok()) << moves.status();
    for (const sharding::Move& move : *moves) {
      for (int64_t i = move.begin; i < move.end; ++i) {
        const auto& have = holders[move.parameter][i];
        const bool itself = std::binary_search(have.begin(), have.end(), move.to);
        ASSERT_EQ(move.from, itself ? move.to : have.front());
      }
    }
    EXPECT_TRUE(std::is_sorted(
        moves->begin(), moves->end(), [](const sharding::Move& x, const sharding::Move& y) {
          return std::tuple(x.to, x.from, x.to_offset) < std::tuple(y.to, y.from, y.to_offset);
        }));
  }
}

TEST(LayoutProperty, CheckCompleteNoticesARangeRemovedDoubledOrShifted) {
  int tried = 0;
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const auto specs = RandomSpecs(dice, /*huge=*/int64_t{1} << 30);
    const int holders = 1 + dice.Below(64);
    const sharding::Placement whole =
        dice.OneIn(2) ? sharding::CutEvenly(ElementsOf(specs), holders, 16)
                      : Sharded(GroupsOfAll(specs, holders, dice), specs, holders);
    ASSERT_TRUE(sharding::CheckComplete(whole).ok()) << sharding::CheckComplete(whole);
    const int64_t holder = dice.Below(holders);
    if (whole.holders[holder].empty()) continue;
    ++tried;
    const size_t index = dice.Below(whole.holders[holder].size());
    const sharding::Range range = whole.holders[holder][index];

    sharding::Placement removed = whole;
    removed.holders[holder].erase(removed.holders[holder].begin() + index);
    EXPECT_EQ(sharding::CheckComplete(removed).code(), absl::StatusCode::kDataLoss);

    sharding::Placement doubled = whole;
    doubled.holders[dice.Below(holders)].push_back(range);
    EXPECT_EQ(sharding::CheckComplete(doubled).code(), absl::StatusCode::kDataLoss);

    sharding::Placement shifted = whole;
    const int64_t by = dice.OneIn(2) ? 1 : -1;
    shifted.holders[holder][index].begin += by;
    shifted.holders[holder][index].end += by;
    const bool inside = range.begin + by >= 0 && range.end + by <= specs[range.parameter].elements;
    EXPECT_EQ(sharding::CheckComplete(shifted).code(),
              inside ? absl::StatusCode::kDataLoss : absl::StatusCode::kInvalidArgument);
  }
  EXPECT_GT(tried, 300);
}

// The beginning of a parameter: the beginning of its group in each rank's storage, and its offset
// in the group.
struct Place {
  int64_t group_begin = 0;  // in the storage
  int64_t offset = 0;       // in the group
  int64_t slice = 0;
};

std::vector<Place> PlacesOf(const std::vector<Group>& groups, size_t parameters, int world_size) {
  std::vector<Place> places(parameters);
  int64_t base = 0;
  for (const Group& group : groups) {
    const int64_t slice = group.elements / world_size;
    for (const auto& member : group.members)
      places[member.parameter] = {base, member.offset, slice};
    base += slice;
  }
  return places;
}

TEST(LayoutProperty, OneMillionParametersOn4096Ranks) {
  Dice dice(1);
  std::vector<ParameterSpec> specs(1000000);
  int64_t total = 0;
  for (ParameterSpec& spec : specs) total += spec.elements = dice.Below(64);
  const auto before = AssignBuckets(specs, 4096, {});
  const auto after = AssignBuckets(specs, 4095, {});
  const sharding::Placement from = Sharded(before, specs, 4096);
  const sharding::Placement to = Sharded(after, specs, 4095);
  EXPECT_TRUE(sharding::CheckComplete(from).ok()) << sharding::CheckComplete(from);
  EXPECT_TRUE(sharding::CheckComplete(to).ok()) << sharding::CheckComplete(to);
  const auto moves = sharding::Redistribute(from, to);
  ASSERT_TRUE(moves.ok()) << moves.status();

  // The expected place of each move comes from a division, without any table of ranges.
  const auto from_places = PlacesOf(before, specs.size(), 4096);
  const auto to_places = PlacesOf(after, specs.size(), 4095);
  int64_t moved = 0, wrong = 0;
  for (const sharding::Move& move : *moves) {
    const Place& source = from_places[move.parameter];
    const Place& target = to_places[move.parameter];
    const int64_t out = source.offset + move.begin, in = target.offset + move.begin;
    const int64_t size = move.end - move.begin;
    wrong += move.from != out / source.slice || move.to != in / target.slice ||
             move.from != (out + size - 1) / source.slice ||
             move.to != (in + size - 1) / target.slice ||
             move.from_offset != source.group_begin + out % source.slice ||
             move.to_offset != target.group_begin + in % target.slice;
    moved += size;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(moved, total);
}

}  // namespace
}  // namespace muster::layout
