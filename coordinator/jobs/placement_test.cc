#include "coordinator/jobs/placement.h"

#include <gtest/gtest.h>

namespace muster::jobs {
namespace {

using Placed = std::vector<Slot>;

TEST(Placement, SpansFewNodesTheEmptiestFirst) {
  Slots slots;
  slots.Offer("a", 1);
  slots.Offer("b", 2);
  EXPECT_EQ(*slots.Place(2), (Placed{{"b", 0}, {"b", 1}}));
  EXPECT_EQ(slots.free(), 1);
}

TEST(Placement, TakesNothingWhenItDoesNotFit) {
  Slots slots;
  slots.Offer("a", 1);
  slots.Offer("b", 1);
  EXPECT_FALSE(slots.Place(3).has_value());
  EXPECT_EQ(*slots.Place(2), (Placed{{"a", 0}, {"b", 0}}));
}

TEST(Placement, NeverGivesAUsedSlot) {
  Slots slots;
  slots.Offer("a", 3);
  slots.Use({"a", 1});
  slots.Use({"a", 7});
  slots.Use({"gone", 0});
  EXPECT_EQ(*slots.Place(2), (Placed{{"a", 0}, {"a", 2}}));
  EXPECT_FALSE(slots.Place(1).has_value());
}

TEST(Placement, SaysWhatIsMissing) {
  Slots slots;
  EXPECT_EQ(slots.Shortage(1), "needs 1 slot; no agent is attached");
  slots.Offer("a", 1);
  EXPECT_EQ(slots.Shortage(4), "needs 4 slots; 1 is offered by 1 node, 1 of them free");
  slots.Offer("b", 2);
  slots.Use({"a", 0});
  EXPECT_EQ(slots.Shortage(4), "needs 4 slots; 3 are offered by 2 nodes, 2 of them free");
}

}  // namespace
}  // namespace muster::jobs
