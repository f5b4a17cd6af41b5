#include "client/cli/stopper.h"

#include <gtest/gtest.h>

#include "client/cli/terminal/interrupts.h"

namespace muster::cli {
namespace {

class StopperTest : public testing::Test {
 protected:
  // The state of a stopper on such a coordinator after these signals. The text has "interrupted",
  // "leaves" and "hurried" if they are true, and how often the coordinator was told to leave.
  std::string After(Coordinator coordinator, const std::vector<int>& signals) {
    Interrupts interrupts([](int) {});
    Stopper stopper(&interrupts, coordinator);
    int told = 0;
    EXPECT_FALSE(stopper.interrupted());
    stopper.CoordinatorRuns([&told] { ++told; });
    for (const int signal : signals) interrupts.Deliver(signal);
    std::string what = stopper.interrupted() ? "interrupted" : "";
    if (stopper.leaves()) what += " leaves";
    if (stopper.hurried()) what += " hurried";
    EXPECT_EQ(stopper.hurried(), stopper.over()->cancelled());
    for (; told > 0; --told) what += " told";
    return what;
  }
};

TEST_F(StopperTest, TheFirstInterruptAsksAndTheSecondHurries) {
  EXPECT_EQ(After(Coordinator::kOwn, {SIGINT}), "interrupted");
  EXPECT_EQ(After(Coordinator::kOwn, {SIGINT, SIGINT}), "interrupted hurried");
  EXPECT_EQ(After(Coordinator::kOwn, {SIGQUIT}), "interrupted hurried");
}

TEST_F(StopperTest, OtherSignalsAskARunToLeaveHoweverOftenTheyCome) {
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    EXPECT_EQ(After(Coordinator::kOwn, {signal, SIGTERM}), "interrupted leaves told");
  }
  EXPECT_EQ(After(Coordinator::kOwn, {SIGTERM, SIGINT}), "interrupted told") << "it is a stop now";
  EXPECT_EQ(After(Coordinator::kOwn, {SIGTERM, SIGQUIT}), "interrupted leaves hurried told");
}

TEST_F(StopperTest, TheJobOfAnotherCoordinatorIsStoppedBySigtermAndLeftByTheOthers) {
  EXPECT_EQ(After(Coordinator::kAnother, {SIGTERM, SIGTERM}), "interrupted");
  EXPECT_EQ(After(Coordinator::kAnother, {SIGHUP}), "interrupted hurried");
}

TEST_F(StopperTest, ASignalBeforeTheCoordinatorRunsIsPassedOn) {
  Interrupts interrupts([](int) {});
  Stopper stopper(&interrupts, Coordinator::kOwn);
  interrupts.Deliver(SIGTERM);
  int told = 0;
  stopper.CoordinatorRuns([&told] { ++told; });
  EXPECT_EQ(told, 1);
  stopper.CoordinatorEnded();
  EXPECT_TRUE(stopper.over()->cancelled());
  EXPECT_FALSE(stopper.hurried());
}

}  // namespace
}  // namespace muster::cli
