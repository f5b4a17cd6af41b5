#include "client/cli/stopper.h"

#include <gtest/gtest.h>

#include "client/cli/terminal/interrupts.h"

namespace muster::cli {
namespace {

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
