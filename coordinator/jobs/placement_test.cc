#include "coordinator/jobs/placement.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "common/slots/slots.h"

namespace muster::jobs {
namespace {

using Placed = std::vector<Slot>;

// Returns this many slot numbers.
std::vector<uint32_t> Numbers(uint32_t count, uint32_t first = 0) {
  std::vector<uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

TEST(Placement, SpansFewNodesTheEmptiestFirst) {
  Slots slots;
  slots.Offer("a", Numbers(1));
  slots.Offer("b", Numbers(2));
  EXPECT_EQ(*slots.Place(0, 2), (Placed{{"b", 0}, {"b", 1}}));
  EXPECT_EQ(slots.free(), 1);
}

TEST(Placement, TakesNothingWhenItDoesNotFit) {
  Slots slots;
  slots.Offer("a", Numbers(1));
  slots.Offer("b", Numbers(1));
  EXPECT_FALSE(slots.Place(0, 3).has_value());
  EXPECT_EQ(*slots.Place(0, 2), (Placed{{"a", 0}, {"b", 0}}));
}

TEST(Placement, NeverGivesAUsedSlot) {
  Slots slots;
  slots.Offer("a", Numbers(3));
  slots.Use({"a", 1});
  slots.Use({"a", 7});
  slots.Use({"gone", 0});
  EXPECT_EQ(*slots.Place(0, 2), (Placed{{"a", 0}, {"a", 2}}));
  EXPECT_FALSE(slots.Place(0, 1).has_value());
}

TEST(Placement, SaysWhatIsMissing) {
  Slots slots;
  EXPECT_EQ(slots.Shortage(1), "needs 1 slot; no agent is attached");
  slots.Offer("a", Numbers(1));
  EXPECT_EQ(slots.Shortage(4), "needs 4 slots; 1 is offered by 1 node, 1 of them free");
  slots.Offer("b", Numbers(2));
  slots.Use({"a", 0});
  EXPECT_EQ(slots.Shortage(4), "needs 4 slots; 3 are offered by 2 nodes, 2 of them free");
}

TEST(Placement, GpusAreSlotsOfTheirOwn) {
  Slots slots(Device::kCuda);
  EXPECT_EQ(slots.Shortage(2), "needs 2 GPUs; no agent is attached");
  slots.Offer("cpu-only", Numbers(0));
  EXPECT_EQ(slots.Shortage(2), "needs 2 GPUs; no attached agent offers any");
  slots.Offer("a", Numbers(2, kFirstGpuSlot));
  slots.Use({"a", 0});  // a slot of the CPU
  slots.Use({"a", kFirstGpuSlot});
  EXPECT_FALSE(slots.IsFree({"a", kFirstGpuSlot}));
  EXPECT_TRUE(slots.IsFree({"a", kFirstGpuSlot + 1}));
  EXPECT_EQ(slots.Shortage(2), "needs 2 GPUs; 2 are offered by 1 node, 1 of them free");
  EXPECT_EQ(*slots.Place(0, 1), (Placed{{"a", kFirstGpuSlot + 1}}));
}

TEST(Placement, RanksOfOneJobAreOnNodesOfOneProtocolTheNewestThatHasRoom) {
  Slots slots;
  slots.Offer("new", Numbers(1), 3);
  slots.Offer("old", Numbers(2), 2);
  slots.Offer("old-too", Numbers(1), 2);
  const auto place = [&](std::vector<WaitingJob> line) {
    return PlaceJobs(std::move(line), slots, {}, absl::UnixEpoch());
  };
  EXPECT_EQ(place({{.id = "a", .world_size = 4}})[0].reason,
            "needs 4 slots; 4 are offered by 3 nodes, 4 of them free, but not enough of them on "
            "nodes whose programs have one version");
  const auto decisions =
      place({{.id = "a", .number = 1}, {.id = "b", .number = 2, .world_size = 3}});
  EXPECT_EQ(*decisions[0].placed, (Placed{{"new", 0}}));
  EXPECT_EQ(*decisions[1].placed, (Placed{{"old", 0}, {"old", 1}, {"old-too", 0}}));
}

TEST(Placement, CountsWhatANodeHasFree) {
  Slots slots;
  slots.Offer("a", Numbers(3));
  slots.Use({"a", 1});
  EXPECT_EQ(slots.free("a"), 2);
  EXPECT_EQ(slots.free("gone"), 0);
}

// A line in any order, the free slots of its node, and the expected decisions.
struct LineCase {
  const char* name;
  std::vector<WaitingJob> line;
  uint32_t slots;
  // The decisions in the order of the line: "id" if the job is placed, "id: reason" if it waits.
  std::vector<std::string> expected;
};

class PlacementLine : public testing::TestWithParam<LineCase> {};

TEST_P(PlacementLine, IsServedInItsOrder) {
  Slots slots;
  slots.Offer("n", Numbers(GetParam().slots));
  std::vector<std::string> found;
  for (const Decision& decision : PlaceJobs(GetParam().line, slots, {}, absl::UnixEpoch())) {
    EXPECT_EQ(decision.placed.has_value(), decision.reason.empty());
    found.push_back(decision.placed.has_value() ? decision.id
                                                : decision.id + ": " + decision.reason);
  }
  EXPECT_EQ(found, GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, PlacementLine,
    testing::Values(
        LineCase{"Empty", {}, 2, {}},
        LineCase{"OrderOfSubmission",
                 {{.id = "b", .number = 2}, {.id = "a", .number = 1}, {.id = "c", .number = 3}},
                 3,
                 {"a", "b", "c"}},
        LineCase{"TheHighestPriorityFirst",
                 {{.id = "a", .number = 1, .priority = -1},
                  {.id = "b", .number = 2},
                  {.id = "c", .number = 3, .priority = 7},
                  {.id = "d", .number = 4, .priority = 7}},
                 2,
                 {"c", "d", "b: needs 1 slot; 2 are offered by 1 node, 0 of them free",
                  "a: waits behind job 'b' of priority 0"}},
        LineCase{"TheExtremesOfPriority",
                 {{.id = "low", .number = 1, .priority = INT32_MIN},
                  {.id = "high", .number = 2, .priority = INT32_MAX}},
                 2,
                 {"high", "low"}},
        LineCase{"WhatCanNeverFitHoldsUpNobody",
                 {{.id = "small", .number = 2}, {.id = "big", .number = 1, .world_size = 3}},
                 2,
                 {"big: needs 3 slots; 2 are offered by 1 node, 2 of them free", "small"}},
        LineCase{"WhatHasStartedGivesWayToNoPriority",
                 {{.id = "urgent", .number = 2, .priority = 100},
                  {.id = "first", .number = 3, .priority = -5, .started = true},
                  {.id = "again", .number = 4, .priority = -5, .started = true, .world_size = 2}},
                 2,
                 {"first", "again: needs 2 slots; 2 are offered by 1 node, 1 of them free",
                  "urgent: waits behind job 'again', which starts again"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Placement, ANodeToAvoidIsTakenOnlyWhenThereIsNoOther) {
  Slots slots;
  slots.Offer("bad", Numbers(4));
  slots.Offer("good", Numbers(2));
  WaitingJob job{.id = "a", .number = 1, .world_size = 2, .avoid = {"bad"}};
  EXPECT_EQ(*PlaceJobs({job}, slots, {}, absl::UnixEpoch())[0].placed,
            (std::vector<Slot>{{"good", 0}, {"good", 1}}));
  job.world_size = 3;
  EXPECT_EQ(*PlaceJobs({job}, slots, {}, absl::UnixEpoch())[0].placed,
            (std::vector<Slot>{{"good", 0}, {"good", 1}, {"bad", 0}}));
}

}  // namespace
}  // namespace muster::jobs
