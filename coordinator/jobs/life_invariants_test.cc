// The invariants of a job's life under any events in any order.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>

#include "coordinator/jobs/conclusion.h"
#include "coordinator/jobs/life.h"
#include "coordinator/jobs/life_fixture.h"

namespace muster::jobs {
namespace {

// Checks these invariants under any events: terminal states never reopen. Generations and restarts
// only grow and stay within their limits. No process of a former generation is left when the next
// generation starts.
TEST(Life, HoldsItsInvariantsUnderRandomEvents) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    Job job = NewJob(1 + pick(4), pick(3));
    double now = 0;
    Job before = job;
    for (int event = 0; event < 60; ++event) {
      now += pick(20) * 0.5;
      const uint32_t rank = pick(job.plan.world_size + 1);
      const bool could_start = job.waiting();
      switch (pick(16)) {
        case 0:
        case 1:
          StartGeneration(&job, Ranks(job), At(now));
          EXPECT_EQ(job.generation, before.generation + (could_start ? 1 : 0));
          break;
        case 2:
        case 3:
          OnAttached(&job, rank);
          OnSessionStarted(&job, rank, pick(10));
          break;
        case 14: {
          RanksToEnd ended;
          OnPreempted(&job, "node 'n0' is drained", At(now), &ended);
          break;
        }
        case 15: {
          Exit exit = Signal(15);
          exit.why = static_cast<Exit::Why>(pick(7));
          OnExit(&job, rank, exit, kTimeouts, At(now));
          if (pick(4) == 0) OnCheckpoint(&job, pick(20));
          break;
        }
        case 4:
        case 5:
          OnFinished(&job, rank, pick(4) == 0, kTimeouts, At(now));
          break;
        case 6:
          OnFailureReport(&job, rank,
                          {.reason = "r",
                           .consequence = pick(2) == 0,
                           .permanent = pick(8) == 0,
                           .code = pick(4) == 0 ? "FINAL_SAVE_FAILED" : ""},
                          kTimeouts, At(now));
          break;
        case 7:
        case 8:
          OnExit(&job, rank, pick(2) == 0 ? Code(static_cast<int>(pick(3))) : Signal(9), kTimeouts,
                 At(now));
          break;
        case 9:
          OnLost(&job, rank, {"lost"}, At(now));
          break;
        case 10:
          OnGone(&job, rank, "gone", At(now));
          break;
        case 11:
          if (pick(4) == 0) OnInterrupted(&job, "node 'n0' is drained", At(now));
          if (pick(6) == 0) OnStop(&job, kTimeouts, At(now));
          break;
        default: {
          const bool ended = !OnTick(&job, At(now)).empty();
          // Time alone ends no process that is at work.
          ASSERT_TRUE(!ended || before.ending() || before.stop_requested() || EndsByItself(before))
              << seed;
          break;
        }
      }
      if (before.terminal()) {
        ASSERT_EQ(job.state(), before.state()) << seed;
        ASSERT_EQ(job.generation, before.generation);
        ASSERT_EQ(job.state_reason, before.state_reason);
      }
      ASSERT_GE(job.generation, before.generation) << seed;
      ASSERT_GE(job.restarts, before.restarts);
      ASSERT_LE(job.restarts_used, job.plan.max_restarts);
      if (job.generation > before.generation) {
        for (const Rank& r : before.ranks) ASSERT_TRUE(r.exited) << seed;
        ASSERT_FALSE(job.stop_requested());
      }
      if (job.state() == State::kSucceeded) {
        for (const Rank& r : job.ranks) ASSERT_TRUE(r.finished && r.exited) << seed;
        ASSERT_FALSE(job.stop_requested());
      }
      if (job.state() == State::kFailed) ASSERT_FALSE(job.failures.empty()) << seed;
      if (job.terminal()) ASSERT_FALSE(job.live()) << seed;
      before = job;
    }
  }
}

}  // namespace
}  // namespace muster::jobs
