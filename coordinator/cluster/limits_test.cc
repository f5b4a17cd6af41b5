// The cluster's refusals of what is too much.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/world.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

const commands::Command kLater{.kind = v1::Operation::SAVE_CHECKPOINT, .at_step = 1000};

struct LimitedWorld : World {
  explicit LimitedWorld(const Limits& wanted) {
    limits = wanted;
    Restart();
  }
  std::string SubmitReason(const std::string& id, const std::string& request_id = "") {
    const auto submitted =
        cluster().Submit({.job_id = id, .name = id, .request_id = request_id}, now());
    Commit();
    return submitted.ok() ? "OK" : RefusalReason(submitted.status());
  }
};

TEST(ClusterLimits, JobsAreCountedUntilTheyAreDeleted) {
  LimitedWorld world({.jobs = 2});
  EXPECT_EQ(world.SubmitReason("a"), "OK");
  EXPECT_EQ(world.SubmitReason("b"), "OK");
  EXPECT_EQ(world.SubmitReason("c"), "TOO_MANY_JOBS");
  ASSERT_TRUE(world.Stop("a").ok());
  EXPECT_EQ(world.SubmitReason("c"), "TOO_MANY_JOBS");
  ASSERT_TRUE(world.Delete("a").ok());
  EXPECT_EQ(world.SubmitReason("c"), "OK");
}

TEST(ClusterLimits, JobsThatHaveNotEndedAreCounted) {
  LimitedWorld world({.open_jobs = 2});
  EXPECT_EQ(world.SubmitReason("a"), "OK");
  EXPECT_EQ(world.SubmitReason("b"), "OK");
  EXPECT_EQ(world.SubmitReason("c"), "TOO_MANY_OPEN_JOBS");
  ASSERT_TRUE(world.Stop("a").ok());
  EXPECT_EQ(world.SubmitReason("c"), "OK");
}

TEST(ClusterLimits, OpenCommandsOfAJobAreCountedAndAStopAndACancelAreAlwaysTaken) {
  LimitedWorld world({.open_commands = 2});
  world.Start("job", 1);
  ASSERT_TRUE(world.Command("job", kLater).ok());
  ASSERT_TRUE(world.Command("job", kLater).ok());
  EXPECT_EQ(RefusalReason(world.Command("job", kLater).status()), "TOO_MANY_OPEN_COMMANDS");
  // Another job may still have open commands.
  world.Submit("other", 1);
  EXPECT_TRUE(world.Command("other", kLater).ok());
  EXPECT_TRUE(world.Cancel("job", 2).ok());
  EXPECT_TRUE(world.Stop("job").ok());
  EXPECT_EQ(world.job("job").state(), jobs::State::kStopping);
}

TEST(ClusterLimits, ACommandThatIsDoneMakesRoomForAnother) {
  LimitedWorld world({.open_commands = 1});
  world.Start("job", 1);
  ASSERT_TRUE(world.Command("job", kLater).ok());
  EXPECT_FALSE(world.Command("job", kLater).ok());
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = CommandFinished{.number = 1}}).ok());
  EXPECT_TRUE(world.Command("job", kLater).ok());
}

TEST(ClusterLimits, CommandsOfAJobInAllAreCounted) {
  LimitedWorld world({.commands = 2});
  world.Start("job", 1);
  for (uint64_t number : {1, 2}) {
    ASSERT_TRUE(world.Command("job", kLater).ok());
    ASSERT_TRUE(
        world.Report(10, {.sequence = number + 1, .what = CommandFinished{.number = number}}).ok());
  }
  EXPECT_EQ(RefusalReason(world.Command("job", kLater).status()), "TOO_MANY_COMMANDS");
  EXPECT_TRUE(world.Stop("job").ok());
}

TEST(ClusterLimits, RequestIdsAreCountedAndARepeatIsStillAnswered) {
  LimitedWorld world({.request_ids = 1});
  EXPECT_EQ(world.SubmitReason("a", "one"), "OK");
  EXPECT_EQ(world.SubmitReason("b", "two"), "TOO_MANY_REQUEST_IDS");
  EXPECT_EQ(world.SubmitReason("a", "one"), "OK");
  EXPECT_EQ(RefusalReason(world.Command("a", kLater, "two").status()), "TOO_MANY_REQUEST_IDS");
  EXPECT_TRUE(world.Stop("a", "two").ok()) << "a stop is always taken";
}

TEST(ClusterLimits, TheJobFilesOfAllJobsAreCountedInBytes) {
  LimitedWorld world({.spec_bytes = 10});
  const auto submit = [&](const std::string& id, size_t bytes) {
    const auto submitted = world.cluster().Submit(
        {.job_id = id, .name = id, .spec = std::string(bytes, 's')}, world.now());
    world.Commit();
    return submitted.status();
  };
  EXPECT_TRUE(submit("a", 6).ok());
  EXPECT_TRUE(submit("b", 4).ok());
  const absl::Status refused = submit("c", 1);
  EXPECT_EQ(RefusalReason(refused), "JOBS_TOO_LARGE");
  EXPECT_EQ(AboutOf(refused)["limit"], "10");
  world.Restart();
  EXPECT_EQ(RefusalReason(submit("c", 1)), "JOBS_TOO_LARGE") << "also what was loaded counts";
  ASSERT_TRUE(world.Stop("a").ok());
  ASSERT_TRUE(world.Delete("a").ok());
  EXPECT_TRUE(submit("c", 6).ok());
}

TEST(ClusterLimits, CommandsOfAJobAreCountedInBytes) {
  LimitedWorld world({.command_bytes = 10});
  world.Start("job", 1);
  commands::Command command = kLater;
  command.contents = "123456";
  ASSERT_TRUE(world.Command("job", command).ok());
  const absl::Status refused = world.Command("job", command).status();
  EXPECT_EQ(RefusalReason(refused), "COMMANDS_TOO_LARGE");
  EXPECT_EQ(AboutOf(refused)["limit"], "10");
  world.Restart();
  EXPECT_EQ(RefusalReason(world.Command("job", command).status()), "COMMANDS_TOO_LARGE");
  EXPECT_TRUE(world.Stop("job").ok()) << "a stop is always taken";
}

TEST(ClusterLimits, NodesThatHoldALeaseAreCounted) {
  LimitedWorld world({.nodes = 1});
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  const absl::Status refused = world.Attach(2, Hello("b", 1));
  EXPECT_EQ(RefusalReason(refused), "TOO_MANY_NODES");
  EXPECT_EQ(AboutOf(refused)["node"], "b");
  EXPECT_TRUE(world.Attach(3, Hello("a", 1)).ok()) << "one that is known";
}

TEST(ClusterLimits, TheNextAttemptOfAJobIsOneMoreThatHasNotEnded) {
  LimitedWorld world({.open_jobs = 1});
  ASSERT_EQ(world.SubmitReason("a"), "OK");
  ASSERT_TRUE(world.Stop("a").ok());
  ASSERT_EQ(world.SubmitReason("b"), "OK");
  const auto retry = world.cluster().NextAttempt({.job_id = "a"}, world.now());
  EXPECT_EQ(RefusalReason(retry.status()), "TOO_MANY_OPEN_JOBS");
}

// The cost of a command does not grow with the log: rows here, time in bench/commands.
TEST(ClusterLimits, TheTenThousandthCommandWritesAsManyRowsAsTheFirst) {
  World world;
  world.Start("job", 2);
  const auto rows_of_one = [&] {
    EXPECT_TRUE(
        world.cluster()
            .Command({.job_id = "job", .command = {.kind = v1::Operation::REFRESH}}, world.now())
            .ok());
    const store::Batch batch = world.cluster().TakeBatch();
    size_t rows = 0;
    for (const auto& job : batch.jobs) rows += job.rows();
    EXPECT_TRUE(world.store().Commit(batch).ok());
    return rows;
  };
  const size_t first = rows_of_one();
  for (int i = 2; i < 10000; ++i) rows_of_one();
  EXPECT_EQ(rows_of_one(), first);
  EXPECT_EQ(first, 1) << "the command";
}

}  // namespace
}  // namespace muster::cluster
