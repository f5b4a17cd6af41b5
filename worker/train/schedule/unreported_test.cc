#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/train/reports/test_commands.h"
#include "worker/train/schedule/command_schedule.h"

namespace muster::train {
namespace {

using What = Unreported::What;

Command Rate(int64_t number) { return Numbered(number, RateOf(0.1)); }
Command Ended(int64_t number) { return Numbered(number, A(v1::NoCommand())); }
Command Cancel(int64_t number, int64_t target) { return Numbered(number, CancelOf(target)); }

// Returns the unreported commands of a checkpoint at step 20 that includes all of `log`.
std::vector<Unreported> Find(const std::vector<Command>& log,
                             const std::map<int64_t, int64_t>& steps,
                             std::vector<int64_t> waiting = {}) {
  const int64_t taken = log.size();
  return FindUnreported({.taken = taken, .waiting = std::move(waiting)}, 20, steps, taken,
                        [&](int64_t number) { return log.at(number - 1); });
}

TEST(Unreported, WhatTookEffectIsFinishedAtItsStepOrElseAtTheCheckpoints) {
  EXPECT_THAT(
      Find({Rate(1), Rate(2)}, {{2, 7}}),
      testing::ElementsAre(Unreported{1, What::kFinished, 20}, Unreported{2, What::kFinished, 7}));
}

TEST(Unreported, WhatWaitsOrIsDoneAnewIsLeftOut) {
  Command replayed = Rate(2);
  replayed.set_replay(true);
  Command begun = Rate(3);
  begun.set_begun(true);
  const Command halt = Numbered(4, A(v1::PauseCommand()));
  EXPECT_THAT(Find({Rate(1), replayed, begun, halt}, {}, {1}), testing::IsEmpty());
}

TEST(Unreported, ACommandThatWasCancelledBeforeItTookEffectIsReportedAsCancelled) {
  EXPECT_THAT(
      Find({Rate(1), Cancel(2, 1)}, {}),
      testing::ElementsAre(Unreported{1, What::kCancelled, 0}, Unreported{2, What::kFinished, 20}));
  EXPECT_THAT(
      Find({Rate(1), Cancel(2, 1)}, {{1, 5}}),
      testing::ElementsAre(Unreported{1, What::kFinished, 5}, Unreported{2, What::kFinished, 20}));
}

TEST(Unreported, OfWhatTheCoordinatorHasEndedOnlyTheStepIsSaid) {
  EXPECT_THAT(Find({Ended(1), Ended(2)}, {{1, 6}}),
              testing::ElementsAre(Unreported{1, What::kApplied, 6}));
}

TEST(Unreported, CommandsThatThisProcessDoesNotHoldAreNotAskedFor) {
  const auto get = [](int64_t number) {
    EXPECT_LE(number, 1);
    return Rate(number);
  };
  EXPECT_THAT(FindUnreported({.taken = 9}, 20, {}, 1, get),
              testing::ElementsAre(Unreported{1, What::kFinished, 20}));
}

}  // namespace
}  // namespace muster::train
