#include "client/cli/terminal/interrupts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace muster::cli {
namespace {

using ::testing::ElementsAre;

TEST(Interrupts, AreCountedForEachListenerAndGoElsewhereWithoutOne) {
  int otherwise = 0;
  Interrupts interrupts([&] { ++otherwise; });
  interrupts.Deliver();
  EXPECT_EQ(otherwise, 1);
  for (int listener = 0; listener < 2; ++listener) {
    std::vector<int> counts;
    const Interrupts::Listener listens(&interrupts, [&](int count) { counts.push_back(count); });
    interrupts.Deliver();
    interrupts.Deliver();
    EXPECT_THAT(counts, ElementsAre(1, 2));
  }
  EXPECT_EQ(otherwise, 1);
  interrupts.Deliver();
  EXPECT_EQ(otherwise, 2);
}

}  // namespace
}  // namespace muster::cli
