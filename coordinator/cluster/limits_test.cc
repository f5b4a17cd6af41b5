// What a cluster refuses because there is too much of it.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/world.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

const commands::Command kLater{.kind = commands::Kind::kSaveCheckpoint, .at_step = 1000};

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
  // Of another job there may be some.
  world.Submit("other", 1);
  EXPECT_TRUE(world.Command("other", kLater).ok());
  EXPECT_TRUE(world.Cancel("job", 2).ok());
  EXPECT_TRUE(world.Stop("job").ok());
  EXPECT_EQ(world.job("job").state, jobs::State::kStopping);
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

TEST(ClusterLimits, ALongRequestIdIsRefused) {
  LimitedWorld world({});
  EXPECT_EQ(world.SubmitReason("a", std::string(129, 'x')), "REQUEST_ID_TOO_LONG");
  EXPECT_EQ(world.SubmitReason("a", std::string(128, 'x')), "OK");
  EXPECT_EQ(RefusalReason(world.Stop("a", std::string(129, 'x'))), "REQUEST_ID_TOO_LONG");
  ASSERT_TRUE(world.Stop("a").ok());
  EXPECT_EQ(RefusalReason(world.Delete("a", std::string(129, 'x')).status()),
            "REQUEST_ID_TOO_LONG");
}

TEST(ClusterLimits, TheNextAttemptOfAJobIsOneMoreThatHasNotEnded) {
  LimitedWorld world({.open_jobs = 1});
  ASSERT_EQ(world.SubmitReason("a"), "OK");
  ASSERT_TRUE(world.Stop("a").ok());
  ASSERT_EQ(world.SubmitReason("b"), "OK");
  const auto retry = world.cluster().NextAttempt({.job_id = "a"}, world.now());
  EXPECT_EQ(RefusalReason(retry.status()), "TOO_MANY_OPEN_JOBS");
  const auto long_id = world.cluster().NextAttempt(
      {.job_id = "a", .request_id = std::string(129, 'x')}, world.now());
  EXPECT_EQ(RefusalReason(long_id.status()), "REQUEST_ID_TOO_LONG");
}

TEST(ClusterLimits, ALongRequestIdOfANodeIsRefused) {
  LimitedWorld world({});
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  const NodeRequest request{.node = "a", .request_id = std::string(129, 'x')};
  EXPECT_EQ(RefusalReason(world.cluster().CordonNode(request, world.now())), "REQUEST_ID_TOO_LONG");
  world.cluster().Detached(1, world.now());
  EXPECT_EQ(RefusalReason(world.cluster().ForgetNode(request, world.now())), "REQUEST_ID_TOO_LONG");
}

// What a command costs does not grow: rows here, time in bench/commands.
TEST(ClusterLimits, TheTenThousandthCommandWritesAsManyRowsAsTheFirst) {
  World world;
  world.Start("job", 2);
  const auto rows_of_one = [&] {
    EXPECT_TRUE(
        world.cluster()
            .Command({.job_id = "job", .command = {.kind = commands::Kind::kRefresh}}, world.now())
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
