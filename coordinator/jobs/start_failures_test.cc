#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/jobs/conclusion.h"
#include "coordinator/jobs/life.h"
#include "coordinator/jobs/life_fixture.h"

namespace muster::jobs {
namespace {

// Lets a start end in this way before the worker has attached.
void Start(Job* job, const Exit& exit) {
  StartGeneration(job, Ranks(*job), At(0));
  OnExit(job, 0, exit, kTimeouts, At(0));
}

TEST(StartFailures, ThreeInARowAreInVain) {
  Exit no_memory{.cause = Exit::Cause::kStartError, .start_error = "no memory"};
  no_memory.why = Exit::Why::kNodeFault;
  Job job = NewJob(1, 0);
  for (const Exit& exit : {Code(127), no_memory, Signal(9)}) {
    EXPECT_FALSE(HasStartedInVain(job));
    Start(&job, exit);
  }
  ASSERT_TRUE(HasStartedInVain(job));
  FailToStart(&job, At(1));
  EXPECT_EQ(job.state(), State::kFailed);
  EXPECT_EQ(job.reason_code, "WORKER_DID_NOT_START");
  EXPECT_THAT(job.state_reason,
              testing::HasSubstr("used up), before it attached to the coordinator; its workers did "
                                 "not start 3 times in a row"));
  EXPECT_EQ(job.restarts, 0);
  OnNextAttempt(&job, At(2));
  EXPECT_FALSE(HasStartedInVain(job)) << "a retry has all starts again";
}

TEST(StartFailures, ANodeThatIsLostWithItsAgentIsNone) {
  Exit with_its_agent = Signal(9);
  with_its_agent.why = Exit::Why::kNodeFault;
  Job job = NewJob(1, 0);
  for (int i = 0; i < 9; ++i) Start(&job, with_its_agent);
  EXPECT_FALSE(HasStartedInVain(job));
}

TEST(StartFailures, AWorkerThatSaysThatItsNodeCannotTakeItIsBelievedAtOnce) {
  Job job = NewJob(1, 5);
  StartGeneration(&job, Ranks(job), At(0));
  OnFailureReport(
      &job, 0,
      {.reason = "no such address", .permanent = true, .code = "NODE_FAULT", .node_fault = true},
      kTimeouts, At(0));
  OnExit(&job, 0, Code(1), kTimeouts, At(0));
  ASSERT_TRUE(HasStartedInVain(job));
  FailToStart(&job, At(1));
  EXPECT_EQ(job.reason_code, "NODE_FAULT");
  EXPECT_THAT(job.state_reason, testing::HasSubstr("no such address; no other node has room"));
  EXPECT_EQ(job.restarts_used, 0);
}

TEST(StartFailures, ASessionBetweenThemBeginsTheCountAgain) {
  Job job = NewJob(1, 5);
  for (int i = 0; i < 2; ++i) Start(&job, Code(127));
  StartGeneration(&job, Ranks(job), At(1));
  Begin(&job);
  OnExit(&job, 0, Signal(11), kTimeouts, At(2));
  for (int i = 0; i < 2; ++i) Start(&job, Code(127));
  EXPECT_FALSE(HasStartedInVain(job));
}

}  // namespace
}  // namespace muster::jobs
