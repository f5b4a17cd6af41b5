#include "client/cli/follow.h"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

v1::Job Job(uint64_t generation, v1::Job::State state, uint64_t step = 5) {
  v1::Job job;
  job.set_generation(generation);
  job.set_state(state);
  job.set_step(step);
  return job;
}

// A job after a start that failed by the fault of this machine.
v1::Job Recovering(uint64_t generation) {
  v1::Job job = Job(generation, v1::Job::RECOVERING);
  job.mutable_failure()->set_generation(generation);
  job.mutable_not_before()->set_seconds(1);
  return job;
}

TEST(Standstill, IsSeenAfterThreeStartsThatFailedWithoutAnythingDone) {
  Standstill standstill;
  EXPECT_FALSE(standstill.Seen(Job(2, v1::Job::RUNNING)));
  for (const uint64_t generation : {2, 3, 4}) {
    EXPECT_FALSE(standstill.Seen(Recovering(generation)));
    EXPECT_FALSE(standstill.Seen(Job(generation + 1, v1::Job::STARTING)));
  }
  EXPECT_TRUE(standstill.Seen(Recovering(5)));
}

TEST(Standstill, AStepOrARestartBeginsTheCountAgain) {
  for (const bool step : {false, true}) {
    Standstill standstill;
    for (const uint64_t generation : {2, 3, 4}) standstill.Seen(Recovering(generation));
    v1::Job better = Job(4, v1::Job::RUNNING, step ? 6 : 5);
    better.set_restarts(step ? 0 : 1);
    EXPECT_FALSE(standstill.Seen(better));
    v1::Job next = Recovering(6);
    next.set_restarts(better.restarts());
    EXPECT_FALSE(standstill.Seen(next));
    next = Recovering(7);
    next.set_restarts(better.restarts());
    EXPECT_TRUE(standstill.Seen(next));
  }
}

TEST(Standstill, AnInterruptionIsNone) {
  Standstill standstill;
  for (uint64_t generation = 1; generation < 9; ++generation) {
    EXPECT_FALSE(standstill.Seen(Job(generation, v1::Job::RECOVERING)));
  }
}

}  // namespace
}  // namespace muster::cli
