#include "client/cli/interrupts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "client/cli/stopper.h"

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

TEST(Stopper, TheFirstInterruptAsksAndTheSecondHurries) {
  Interrupts interrupts([] {});
  Stopper stopper(&interrupts);
  EXPECT_FALSE(stopper.interrupted() || stopper.hurried());
  interrupts.Deliver();
  EXPECT_TRUE(stopper.interrupted());
  EXPECT_FALSE(stopper.hurried());
  interrupts.Deliver();
  EXPECT_TRUE(stopper.hurried());
}

}  // namespace
}  // namespace muster::cli
