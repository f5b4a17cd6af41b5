#include "worker/layout/groups.h"

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::layout {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ElementType kFloat = ElementType::kFloat32;
constexpr ElementType kDouble = ElementType::kFloat64;
constexpr ElementType kInt = ElementType::kInt64;

std::vector<ParameterSpec> Specs(const std::vector<int64_t>& elements) {
  std::vector<ParameterSpec> specs;
  for (const int64_t n : elements) {
    specs.push_back({.name = "p" + std::to_string(specs.size()), .elements = n});
  }
  return specs;
}

// Shows groups: "2@0 1@16 |48", members as parameter@offset, then the padded size, and the type
// unless it is float32.
std::string Show(const std::vector<Group>& groups) {
  std::string text;
  for (const Group& group : groups) {
    for (const auto& member : group.members) {
      text += std::to_string(member.parameter) + "@" + std::to_string(member.offset) + " ";
    }
    text += "|" + std::to_string(group.elements);
    text += group.type == kDouble ? "d " : group.type == kInt ? "i " : " ";
  }
  return text;
}

// Shows ranges: "0[0,16)@0 1[0,3)@16 ".
std::string Show(const std::vector<sharding::Range>& ranges) {
  std::string text;
  for (const sharding::Range& range : ranges) {
    text += std::to_string(range.parameter) + "[" + std::to_string(range.begin) + "," +
            std::to_string(range.end) + ")@" + std::to_string(range.offset) + " ";
  }
  return text;
}

TEST(ElementBytes, OfAllTypes) {
  EXPECT_EQ(ElementBytes(kFloat), 4);
  EXPECT_EQ(ElementBytes(kDouble), 8);
  EXPECT_EQ(ElementBytes(kInt), 8);
}

TEST(MakeGroup, Table) {
  struct Case {
    std::vector<int64_t> elements;
    std::vector<int64_t> parameters;
    int world_size;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {{5}, {}, 4, "|0 "},
      {{5}, {0}, 1, "0@0 |16 "},
      {{5}, {0}, 3, "0@0 |48 "},
      {{16, 17, 1}, {0, 1, 2}, 1, "0@0 1@16 2@48 |64 "},
      // Only the requested parameters, in the requested order.
      {{16, 17, 1}, {2, 0}, 1, "2@0 0@16 |32 "},
      // Parameters without elements: members that take up no space.
      {{0, 4, 0}, {0, 1, 2}, 2, "0@0 1@0 2@16 |32 "},
      {{0}, {0}, 8, "0@0 |0 "},
      // Offsets larger than 32 bits.
      {{int64_t{1} << 40, 1}, {0, 1}, 1, "0@0 1@1099511627776 |1099511627792 "},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Show({MakeGroup(Specs(c.elements), c.parameters, c.world_size)}), c.expected);
  }
}

TEST(MakeGroup, HasTheTypeOfItsParameters) {
  auto specs = Specs({3, 3});
  specs[1].type = kInt;
  EXPECT_EQ(MakeGroup(specs, {1}, 1).type, kInt);
  EXPECT_EQ(MakeGroup(specs, {0}, 1).type, kFloat);
}

TEST(AssignBuckets, OneType) {
  struct Case {
    std::vector<int64_t> elements;
    int world_size;
    BucketLimits limits;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {{}, 2, {64, 256}, ""},
      {{5}, 1, {64, 256}, "0@0 |16 "},
      {{5}, 3, {64, 256}, "0@0 |48 "},
      // Reverse order; the first bucket is closed at 64 bytes, later ones at 256.
      {{64, 16, 16, 16, 16}, 1, {64, 256}, "4@0 |16 3@0 2@16 1@32 0@48 |112 "},
      // A member begins at a multiple of 16.
      {{3, 17, 1}, 2, {1024, 1024}, "2@0 1@16 0@48 |64 "},
      // A huge parameter closes its bucket.
      {{1, 1000, 1}, 1, {1, 256}, "2@0 |16 1@0 |1008 0@0 |16 "},
      // Empty parameters have a position, too.
      {{0, 4, 0}, 1, {1024, 1024}, "2@0 1@0 0@16 |16 "},
      {{0}, 2, {1024, 1024}, "0@0 |0 "},
      // All parameters in one bucket.
      {{10, 20, 30}, 4, {1 << 20, 1 << 20}, "2@0 1@32 0@64 |128 "},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Show(AssignBuckets(Specs(c.elements), c.world_size, c.limits)), c.expected);
  }
}

TEST(AssignBuckets, MixedTypesAndFrozenParameters) {
  const auto with = [](std::vector<ParameterSpec> specs, std::vector<ElementType> types,
                       std::vector<int64_t> frozen = {}) {
    for (size_t i = 0; i < types.size(); ++i) specs[i].type = types[i];
    for (const int64_t i : frozen) specs[i].trainable = false;
    return specs;
  };
  struct Case {
    std::vector<ParameterSpec> specs;
    BucketLimits limits;
    std::string expected;
  };
  const std::vector<Case> cases = {
      // Frozen parameters are in no bucket.
      {with(Specs({1, 2, 3}), {}, {1}), {1024, 1024}, "2@0 0@16 |32 "},
      {with(Specs({1, 2}), {}, {0, 1}), {1024, 1024}, ""},
      // A bucket has one type. The bucket that is complete first, float32 with parameter 1, comes
      // first.
      {with(Specs({1, 1, 1, 1}), {kDouble, kFloat, kDouble, kFloat}),
       {1024, 1024},
       "3@0 1@16 |32 2@0 0@16 |32d "},
      // A double fills 8 bytes of the limit.
      {with(Specs({8, 8, 8, 8}), {kDouble, kDouble, kFloat, kFloat}),
       {64, 64},
       "3@0 2@16 |32 1@0 |16d 0@0 |16d "},
      // The first bucket of each type has the smaller limit.
      {with(Specs({16, 16, 16, 16, 16, 16}), {kFloat, kFloat, kFloat, kInt, kInt, kInt}),
       {1, 256},
       "5@0 |16i 4@0 3@16 |32i 2@0 |16 1@0 0@16 |32 "},
      // The open bucket of a type may be complete before a closed bucket of another type.
      {with(Specs({16, 16, 1}), {kFloat, kFloat, kDouble}), {64, 64}, "2@0 |16d 1@0 |16 0@0 |16 "},
      // A bucket is complete with its last parameter, whenever its first one came.
      {with(Specs({1, 16, 16, 1}), {kDouble, kFloat, kFloat, kDouble}),
       {64, 64},
       "2@0 |16 1@0 |16 3@0 0@16 |32d "},
  };
  for (const Case& c : cases) EXPECT_EQ(Show(AssignBuckets(c.specs, 1, c.limits)), c.expected);
}

TEST(AssignBuckets, EveryParameterHasOnePlaceOfItsOwn) {
  std::vector<int64_t> elements;
  for (int i = 0; i < 500; ++i) elements.push_back((i * 7919) % 3000);
  const auto specs = Specs(elements);
  for (int world_size : {1, 2, 3, 4}) {
    int64_t next = static_cast<int64_t>(elements.size()) - 1;
    for (const Group& group : AssignBuckets(specs, world_size, {1000, 50000})) {
      int64_t end = 0;
      for (const auto& member : group.members) {
        EXPECT_EQ(member.parameter, next--);
        EXPECT_EQ(member.offset % 16, 0);
        EXPECT_GE(member.offset, end);
        end = member.offset + elements[member.parameter];
      }
      EXPECT_LE(end, group.elements);
      EXPECT_EQ(group.elements % (16 * world_size), 0);
    }
    EXPECT_EQ(next, -1);
  }
}

TEST(AssignBuckets, BordersDoNotDependOnTheWorldSize) {
  std::vector<int64_t> elements;
  for (int i = 0; i < 100; ++i) elements.push_back(1 + (i * 7919) % 300);
  const auto specs = Specs(elements);
  const auto one = AssignBuckets(specs, 1, {1000, 5000});
  const auto four = AssignBuckets(specs, 4, {1000, 5000});
  ASSERT_EQ(one.size(), four.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].members, four[i].members);
}

TEST(RangesOf, Table) {
  struct Case {
    std::vector<int64_t> elements;
    int world_size;
    std::vector<std::string> expected;  // by rank
  };
  const std::vector<Case> cases = {
      // Slices of 32 elements: the first parameter fills one and a half slices.
      {{48, 5}, 2, {"0[0,32)@0 ", "0[32,48)@0 1[0,5)@16 "}},
      // The end of a parameter does not reach its padding.
      {{5, 3}, 1, {"0[0,5)@0 1[0,3)@16 "}},
      {{5, 3}, 2, {"0[0,5)@0 ", "1[0,3)@0 "}},
      // A slice that is only padding.
      {{5}, 3, {"0[0,5)@0 ", "", ""}},
      {{40}, 4, {"0[0,16)@0 ", "0[16,32)@0 ", "0[32,40)@0 ", ""}},
      // Parameters without elements are in no slice.
      {{0, 16, 0, 16, 0}, 2, {"1[0,16)@0 ", "3[0,16)@0 "}},
      {{0}, 2, {"", ""}},
      {{}, 2, {"", ""}},
  };
  for (const Case& c : cases) {
    const auto specs = Specs(c.elements);
    std::vector<int64_t> all;
    for (size_t i = 0; i < specs.size(); ++i) all.push_back(i);
    const Group group = MakeGroup(specs, all, c.world_size);
    for (int rank = 0; rank < c.world_size; ++rank) {
      EXPECT_EQ(Show(RangesOf(group, specs, rank, c.world_size)), c.expected[rank])
          << c.elements.size() << " parameters, rank " << rank << " of " << c.world_size;
    }
  }
}

TEST(Sharded, SlicesOfTheGroupsFollowOneAnother) {
  auto specs = Specs({48, 5, 7, 20});
  specs[2].trainable = false;
  const std::vector<Group> groups = {MakeGroup(specs, {3}, 2), MakeGroup(specs, {0, 1}, 2)};
  EXPECT_EQ(SliceElements(groups[0], 2), 16);
  EXPECT_EQ(SliceElements(groups[1], 2), 32);
  const sharding::Placement placement = Sharded(groups, specs, 2);
  EXPECT_THAT(placement.elements, ElementsAre(48, 5, 7, 20));
  ASSERT_EQ(placement.holders.size(), 2);
  EXPECT_EQ(Show(placement.holders[0]), "3[0,16)@0 0[0,32)@16 ");
  EXPECT_EQ(Show(placement.holders[1]), "3[16,20)@0 0[32,48)@16 1[0,5)@32 ");
}

TEST(Sharded, WithoutGroupsNobodyHasAnything) {
  const sharding::Placement placement = Sharded({}, Specs({3}), 2);
  EXPECT_THAT(placement.holders, ElementsAre(IsEmpty(), IsEmpty()));
}

// The example of docs/reference/layout.md.
TEST(Sharded, MovesToAnotherWorldSize) {
  const auto specs = Specs({40, 10, 16});
  const sharding::Placement two = Sharded({MakeGroup(specs, {2, 1, 0}, 2)}, specs, 2);
  EXPECT_EQ(Show(two.holders[0]), "2[0,16)@0 1[0,10)@16 0[0,16)@32 ");
  EXPECT_EQ(Show(two.holders[1]), "0[16,40)@0 ");
  const auto moves =
      sharding::Redistribute(two, Sharded({MakeGroup(specs, {2, 1, 0}, 3)}, specs, 3));
  ASSERT_TRUE(moves.ok()) << moves.status();
  EXPECT_THAT(
      *moves,
      ElementsAre(sharding::Move{0, 0, 2, 0, 16, 0, 0}, sharding::Move{0, 0, 1, 0, 10, 16, 16},
                  sharding::Move{0, 1, 0, 0, 16, 32, 0}, sharding::Move{1, 1, 0, 16, 32, 0, 16},
                  sharding::Move{1, 2, 0, 32, 40, 16, 0}));
}

struct Plan {
  std::vector<ParameterSpec> specs;
  std::vector<Group> groups;
  int world_size = 0;
  uint64_t Hash() const { return Fingerprint(groups, specs, world_size); }
};

Plan ExamplePlan() {
  std::vector<ParameterSpec> specs = {
      {"wte.weight", 1000, kFloat, true}, {"ln.weight", 64, kDouble, false}, {"h", 0, kInt, true}};
  std::vector<Group> groups = {MakeGroup(specs, {2}, 3), MakeGroup(specs, {0}, 3)};
  return {specs, groups, 3};
}

// The hash is the same in all builds on all machines. A change here breaks the comparison between
// ranks of different builds.
TEST(Fingerprint, IsTheSameInEveryBuild) {
  // The expected value comes from libxxhash through Python, over the result of struct.pack("<q",
  // ...) for the numbers.
  EXPECT_EQ(ExamplePlan().Hash(), 0x4840989a47b6834du);
  EXPECT_EQ(Fingerprint({}, {}, 1), 0x076e92c0d7820b16u);
}

TEST(Fingerprint, DiffersWhenAnythingDiffers) {
  const std::vector<std::function<void(Plan&)>> changes = {
      [](Plan&) {},
      [](Plan& p) { p.specs[0].name = "wte.weighs"; },
      // The concatenation of all names stays the same.
      [](Plan& p) { p.specs[0].name = "wte.weightl", p.specs[1].name = "n.weight"; },
      [](Plan& p) { ++p.specs[0].elements; },
      [](Plan& p) { p.specs[0].elements += int64_t{1} << 40; },
      [](Plan& p) { p.specs[1].type = kFloat; },
      [](Plan& p) { p.specs[1].type = kInt; },
      [](Plan& p) { p.specs[1].trainable = true; },
      [](Plan& p) { p.specs.pop_back(); },
      [](Plan& p) { p.specs.push_back(p.specs[2]); },
      [](Plan& p) { std::swap(p.specs[0], p.specs[1]); },
      [](Plan& p) { p.groups[1].members[0].parameter = 1; },
      [](Plan& p) { p.groups[1].members[0].offset = 16; },
      [](Plan& p) { p.groups[1].elements += 48; },
      [](Plan& p) { p.groups[1].type = kDouble; },
      [](Plan& p) { p.groups[1].members.clear(); },
      // The same members are in one group.
      [](Plan& p) {
        p.groups[1].members.insert(p.groups[1].members.begin(), p.groups[0].members[0]);
        p.groups.erase(p.groups.begin());
      },
      [](Plan& p) { std::swap(p.groups[0], p.groups[1]); },
      [](Plan& p) { p.groups.pop_back(); },
      [](Plan& p) { p.groups.push_back({}); },
      [](Plan& p) { p.world_size = 4; },
  };
  std::set<uint64_t> hashes;
  for (const auto& change : changes) {
    Plan plan = ExamplePlan();
    change(plan);
    EXPECT_TRUE(hashes.insert(plan.Hash()).second) << "change " << hashes.size();
    EXPECT_EQ(plan.Hash(), plan.Hash());
  }
}

}  // namespace
}  // namespace muster::layout
