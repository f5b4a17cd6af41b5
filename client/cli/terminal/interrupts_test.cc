#include "client/cli/terminal/interrupts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace muster::cli {
namespace {

using ::testing::ElementsAre;

TEST(Interrupts, GoToTheListenerAndElsewhereWithoutOne) {
  std::vector<int> otherwise;
  Interrupts interrupts([&](int signal) { otherwise.push_back(signal); });
  interrupts.Deliver();
  EXPECT_THAT(otherwise, ElementsAre(SIGINT));
  for (int listener = 0; listener < 2; ++listener) {
    std::vector<int> signals;
    const Interrupts::Listener listens(&interrupts,
                                       [&](int signal) { signals.push_back(signal); });
    interrupts.Deliver();
    interrupts.Deliver(SIGTERM);
    EXPECT_THAT(signals, ElementsAre(SIGINT, SIGTERM));
  }
  interrupts.Deliver(SIGHUP);
  EXPECT_THAT(otherwise, ElementsAre(SIGINT, SIGHUP));
}

TEST(Interrupts, WithoutAListenerTheProcessEndsAsOthersDo) {
  EXPECT_EXIT(Interrupts().Deliver(SIGTERM), testing::ExitedWithCode(130), "");
  EXPECT_EXIT(Interrupts().Deliver(SIGHUP), testing::KilledBySignal(SIGHUP), "");
}

}  // namespace
}  // namespace muster::cli
