// Commands to jobs of a cluster.
#include <gtest/gtest.h>

#include <string>

#include "common/version/protocol.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/world.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

TEST(Commands, ARepeatedCommandGivesTheFirstAnswerWhateverThereIsAgainstItNow) {
  World world;
  world.Submit("job", 1);
  const CommandRequest request{.job_id = "job",
                               .request_id = "r",
                               .fingerprint = "f",
                               .command = {.kind = v1::Operation::SET_LEARNING_RATE}};
  const auto refuses = [](const jobs::Job&) { return absl::InvalidArgumentError("no"); };
  EXPECT_EQ(*world.cluster().Command(request, world.now()), 1);
  world.Commit();
  world.Restart();
  EXPECT_EQ(*world.cluster().Command(request, world.now(), refuses), 1);
  CommandRequest other = request;
  other.request_id = "r2";
  EXPECT_EQ(world.cluster().Command(other, world.now(), refuses).status().message(), "no");
  EXPECT_EQ(world.job("job").commands.commands().size(), 1);
}

TEST(Commands, AStepThatNoJobReachesIsRefused) {
  World world;
  world.Submit("job", 1);
  const auto number = world.Command("job", {.kind = v1::Operation::STOP, .at_step = UINT64_MAX});
  EXPECT_EQ(RefusalReason(number.status()), "AT_STEP_INVALID");
}

TEST(Commands, TakingACommandBackTwiceIsOneWish) {
  World world;
  world.Attach(1, Hello("n", 1)).IgnoreError();
  world.Submit("job", 1);
  ASSERT_TRUE(world.Command("job", {.kind = v1::Operation::PAUSE, .at_step = 9}).ok());
  EXPECT_EQ(*world.Cancel("job", 1), 1);
  EXPECT_EQ(*world.Cancel("job", 1), 1);
  EXPECT_EQ(world.job("job").commands.commands().size(), 2);
  EXPECT_EQ(RefusalReason(world.Cancel("job", 2).status()), "OPERATION_APPLIED");
  EXPECT_EQ(RefusalReason(world.Cancel("job", 7).status()), "OPERATION_NOT_FOUND");
}

TEST(Commands, AGatherIsCancelledAlsoWhileItsFileIsWritten) {
  World world;
  world.Start("job", 1);
  for (const auto kind : {v1::Operation::GATHER_OPTIMIZER_STATE, v1::Operation::SAVE_CHECKPOINT}) {
    ASSERT_TRUE(world.Command("job", {.kind = kind}).ok());
  }
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = CommandApplied{1, 3}}).ok());
  ASSERT_TRUE(world.Report(10, {.sequence = 3, .what = CommandApplied{2, 3}}).ok());
  EXPECT_EQ(RefusalReason(world.Cancel("job", 2).status()), "OPERATION_APPLIED");
  EXPECT_EQ(*world.Cancel("job", 1), 1);
  EXPECT_FALSE(world.job("job").commands.Find(1)->outcome.has_value()) << "the workers agree on it";
  EXPECT_TRUE(world.job("job").commands.IsBeingCancelled(1));
  // The job's workers are lost, and none of them writes the file.
  world.Pass(60);
  ASSERT_FALSE(world.job("job").live());
}

TEST(Commands, APassThatCrashesItsWorkersCanBeCancelled) {
  World world;
  world.Start("job", 1);
  ASSERT_TRUE(world.Command("job", {.kind = v1::Operation::RUN_STAGE}).ok());
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = CommandApplied{1, 3}}).ok());
  // The workers are lost during the pass. The next workers would run the pass again.
  world.Pass(60);
  ASSERT_FALSE(world.job("job").live());
  EXPECT_EQ(*world.Cancel("job", 1), 1);
  const auto& outcome = world.job("job").commands.Find(1)->outcome;
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->code, absl::StatusCode::kCancelled);
  EXPECT_EQ(outcome->message, "cancelled before it took effect");
}

TEST(Commands, ACommandIsRefusedWhereAWorkerWouldIgnoreIt) {
  World world;
  world.Attach(1, Hello("n", 1)).IgnoreError();
  world.Submit("job", 1);
  ASSERT_TRUE(
      world.cluster()
          .AttachWorker(10, {.worker = world.job("job").Worker(0), .protocol = kWorkerProtocol - 1},
                        world.now())
          .ok());
  EXPECT_EQ(RefusalReason(world.Command("job", {.kind = v1::Operation::SKIP_DATA}).status()),
            "WORKER_TOO_OLD");
  EXPECT_TRUE(world.Command("job", {.kind = v1::Operation::GATHER_OPTIMIZER_STATE}).ok());
}

TEST(Commands, WithoutProcessesACommandIsTakenBackAtOnce) {
  World world;
  world.Submit("job", 1);
  ASSERT_TRUE(world.Command("job", {.kind = v1::Operation::PAUSE}).ok());
  EXPECT_EQ(*world.Cancel("job", 1), 1);
  EXPECT_EQ(world.job("job").commands.Find(1)->outcome->code, absl::StatusCode::kCancelled);
  EXPECT_EQ(RefusalReason(world.Cancel("job", 1).status()), "OPERATION_DONE");
}

TEST(Commands, WhatLostProcessesMayHaveDoneIsTakenBackOnlyByTheNext) {
  World world;
  world.Start("job", 1);
  const auto number =
      world.Command("job", {.kind = v1::Operation::SET_LEARNING_RATE, .at_step = 9});
  ASSERT_EQ(*number, 1);
  ASSERT_EQ(*world.Command("job", {.kind = v1::Operation::PAUSE, .at_step = 9}), 2);
  // The node is lost. The cluster does not learn what its processes did until the end of their
  // lease.
  world.Pass(60);
  ASSERT_FALSE(world.job("job").live());
  EXPECT_EQ(*world.Cancel("job", 1), 1);
  EXPECT_FALSE(world.job("job").commands.Find(1)->outcome.has_value());
  EXPECT_TRUE(world.job("job").commands.IsBeingCancelled(1));
  // No checkpoint contains a pause, and no process knows the later commands.
  EXPECT_EQ(*world.Cancel("job", 2), 2);
  EXPECT_EQ(world.job("job").commands.Find(2)->outcome->code, absl::StatusCode::kCancelled);
  ASSERT_EQ(*world.Command("job", {.kind = v1::Operation::SET_LEARNING_RATE}), 4);
  EXPECT_EQ(*world.Cancel("job", 4), 4);
  EXPECT_EQ(world.job("job").commands.Find(4)->outcome->code, absl::StatusCode::kCancelled);
}

TEST(Commands, AHaltedJobIsPausedUntilItIsResumedAlsoOverARestartAndCanBeStopped) {
  World world;
  world.Start("job", 1);
  ASSERT_TRUE(world.Command("job", {.kind = v1::Operation::PAUSE}).ok());
  EXPECT_EQ(RefusalReason(world.Command("job", {.kind = v1::Operation::PAUSE}).status()),
            "JOB_ALREADY_PAUSED");
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = CommandApplied{1, 3}}).ok());
  EXPECT_EQ(world.job("job").state(), jobs::State::kPaused);
  world.Restart();
  EXPECT_EQ(world.job("job").state(), jobs::State::kPaused);
  ASSERT_TRUE(world.Command("job", {.kind = v1::Operation::STOP}).ok());
  EXPECT_EQ(world.job("job").state(), jobs::State::kStopping);
}

TEST(Attempts, AStoppedJobGoesOnWhereItWasAlsoAfterARestart) {
  World world;
  world.Start("job", 1);
  ASSERT_TRUE(world.Command("job", {.kind = v1::Operation::PAUSE}).ok());
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = CommandApplied{1, 5}}).ok());
  ASSERT_TRUE(world.Stop("job").ok());
  ASSERT_TRUE(world.Report(10, {.sequence = 3, .what = Finished{.step = 5}}).ok());
  world.Exit(1, world.job("job").Worker(0), 0);
  ASSERT_EQ(world.job("job").state(), jobs::State::kCancelled);
  ASSERT_EQ(world.job("job").ended_attempts.size(), 0);
  const auto number = world.Command("job", {.kind = v1::Operation::RESUME}, "request");
  ASSERT_TRUE(number.ok()) << number.status();
  EXPECT_EQ(*number, 3);
  EXPECT_EQ(world.job("job").attempt, 2);
  EXPECT_EQ(world.job("job").generation, 2);
  EXPECT_EQ(world.job("job").state(), jobs::State::kStarting);
  EXPECT_EQ(*world.Command("job", {.kind = v1::Operation::RESUME}, "request"), 3) << "a repeat";
  EXPECT_EQ(world.job("job").attempt, 2);
  // Neither the halt nor the stop of the former attempt is carried out again.
  for (const commands::Delivery& delivery : world.job("job").commands.After(0)) {
    EXPECT_EQ(delivery.when, commands::Delivery::When::kNever) << delivery.command.number;
  }
  world.Restart();
  EXPECT_EQ(world.job("job").attempt, 2);
  EXPECT_EQ(world.job("job").ended_attempts.at(0).state, jobs::State::kCancelled);
  ASSERT_TRUE(world.Attach(2, Hello("a", 1)).ok());
  ASSERT_TRUE(world.AttachWorker(20, world.job("job").Worker(0)).ok());
  ASSERT_TRUE(world.Report(20, {.sequence = 1, .what = SessionStarted{.step = 5}}).ok());
  ASSERT_TRUE(world.Report(20, {.sequence = 2, .what = Finished{.step = 9}}).ok());
  world.Exit(2, world.job("job").Worker(0), 0);
  EXPECT_EQ(world.job("job").state(), jobs::State::kSucceeded);
  EXPECT_EQ(RefusalReason(world.Command("job", {.kind = v1::Operation::RESUME}).status()),
            "JOB_ALREADY_ENDED");
}

}  // namespace
}  // namespace muster::cluster
