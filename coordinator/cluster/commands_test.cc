// Commands to jobs of a cluster.
#include <gtest/gtest.h>

#include <string>

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
                               .command = {.kind = commands::Kind::kSetLearningRate}};
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
  const auto number = world.Command("job", {.kind = commands::Kind::kStop, .at_step = UINT64_MAX});
  EXPECT_EQ(RefusalReason(number.status()), "AT_STEP_INVALID");
}

TEST(Commands, TakingACommandBackTwiceIsOneWish) {
  World world;
  world.Attach(1, Hello("n", 1)).IgnoreError();
  world.Submit("job", 1);
  ASSERT_TRUE(world.Command("job", {.kind = commands::Kind::kPause, .at_step = 9}).ok());
  EXPECT_EQ(*world.Cancel("job", 1), 1);
  EXPECT_EQ(*world.Cancel("job", 1), 1);
  EXPECT_EQ(world.job("job").commands.commands().size(), 2);
  EXPECT_EQ(RefusalReason(world.Cancel("job", 2).status()), "OPERATION_APPLIED");
  EXPECT_EQ(RefusalReason(world.Cancel("job", 7).status()), "OPERATION_NOT_FOUND");
}

TEST(Commands, WithoutProcessesACommandIsTakenBackAtOnce) {
  World world;
  world.Submit("job", 1);
  ASSERT_TRUE(world.Command("job", {.kind = commands::Kind::kPause}).ok());
  EXPECT_EQ(*world.Cancel("job", 1), 1);
  EXPECT_EQ(world.job("job").commands.Find(1)->outcome->code, absl::StatusCode::kCancelled);
  EXPECT_EQ(RefusalReason(world.Cancel("job", 1).status()), "OPERATION_DONE");
}

TEST(Commands, AHaltedJobIsPausedUntilItIsResumedAlsoOverARestartAndCanBeStopped) {
  World world;
  world.Start("job", 1);
  ASSERT_TRUE(world.Command("job", {.kind = commands::Kind::kPause}).ok());
  EXPECT_EQ(RefusalReason(world.Command("job", {.kind = commands::Kind::kPause}).status()),
            "JOB_ALREADY_PAUSED");
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = CommandApplied{1, 3}}).ok());
  EXPECT_EQ(world.job("job").state, jobs::State::kPaused);
  world.Restart();
  EXPECT_EQ(world.job("job").state, jobs::State::kPaused);
  ASSERT_TRUE(world.Command("job", {.kind = commands::Kind::kStop}).ok());
  EXPECT_EQ(world.job("job").state, jobs::State::kStopping);
}

}  // namespace
}  // namespace muster::cluster
