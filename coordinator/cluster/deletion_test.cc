// Deleted jobs: what the cluster forgets, and what it answers to requests about them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <variant>

#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/world.h"
#include "coordinator/membership/refusal.h"

namespace muster::cluster {
namespace {

TEST(Deletion, OnlyAJobThatHasEndedCanBeDeleted) {
  World world;
  EXPECT_EQ(RefusalReason(world.Delete("job").status()), "JOB_NOT_FOUND");
  world.Submit("job", 1);
  const absl::Status refused = world.Delete("job").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(RefusalReason(refused), "JOB_NOT_ENDED");
  EXPECT_EQ(refused.message(),
            "job 'job' is QUEUED; only a job that has ended can be deleted: stop it first "
            "(`muster stop job --wait`)");
  ASSERT_TRUE(world.Stop("job").ok());
  ASSERT_TRUE(world.Delete("job").ok());
  EXPECT_EQ(world.cluster().Find("job"), nullptr);
  EXPECT_TRUE(world.cluster().submitted().empty());
  EXPECT_TRUE(world.store().Load()->jobs.empty());
}

TEST(Deletion, ARepeatedDeletionGivesTheFirstAnswerForADayAlsoAfterARestart) {
  World world;
  world.Submit("job", 1);
  ASSERT_TRUE(world.Stop("job", "stop-request").ok());
  ASSERT_EQ(*world.Delete("job", "request", "first"), "first");
  // A new job with the same name is not deleted by the repeated request.
  world.Submit("job", 1);
  ASSERT_TRUE(world.Stop("job").ok());
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(*world.Delete("job", "request", "second"), "first");
    EXPECT_NE(world.cluster().Find("job"), nullptr);
    EXPECT_EQ(
        RefusalReason(world.cluster().Delete({"other", "request", "x", ""}, world.now()).status()),
        "REQUEST_ID_REUSED");
    // A repeated stop of the deleted job does not act on the new job.
    EXPECT_EQ(RefusalReason(world.Stop("job", "stop-request")), "JOB_NOT_FOUND");
    world.Restart();
  }
  world.seconds += 24 * 3600;
  world.cluster().Handle(TimePassed{}, world.now());
  world.Commit();
  EXPECT_TRUE(world.store().Load()->requests.empty());
  EXPECT_EQ(*world.Delete("job", "request", "third"), "third");
}

TEST(Deletion, ARepeatedSubmissionDoesNotBringADeletedJobBack) {
  World world;
  const Submission submission{.name = "x", .request_id = "r", .fingerprint = "f"};
  ASSERT_EQ(*world.cluster().Submit(submission, world.now()), "x-1");
  world.Commit();
  ASSERT_TRUE(world.Stop("x-1").ok());
  ASSERT_TRUE(world.Delete("x-1").ok());
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(RefusalReason(world.cluster().Submit(submission, world.now()).status()),
              "JOB_NOT_FOUND");
    world.Commit();
    EXPECT_EQ(world.cluster().Find("x-1"), nullptr);
    world.Restart();
  }
  // The job's number, and with it a name made from the number, is not used again.
  EXPECT_EQ(*world.cluster().Submit({.name = "x"}, world.now()), "x-2");
}

TEST(Deletion, ADeletionTakesWhatWaitsToBeStoredAlong) {
  World world;
  world.Start("job", 1);
  const WorkerId id = world.job("job").Worker(0);
  // All changes are in one transaction.
  Cluster& cluster = world.cluster();
  ASSERT_TRUE(
      cluster.WorkerReported(10, {.sequence = 2, .what = StepDone{.step = 1}}, world.now()).ok());
  cluster.Handle(1, LogLines{id, {"line"}}, world.now());
  ASSERT_TRUE(cluster.WorkerReported(10, {.sequence = 3, .what = Finished{1}}, world.now()).ok());
  cluster.Handle(1, WorkerExit{.worker = id}, world.now());
  ASSERT_TRUE(cluster.Delete({"job", "", "", ""}, world.now()).ok());
  cluster.Handle(1, LogLines{id, {"late"}}, world.now());
  ASSERT_TRUE(cluster.Submit({.job_id = "job", .name = "job"}, world.now()).ok());
  world.Commit();
  const auto image = world.store().Load();
  ASSERT_EQ(image->jobs.size(), 1);
  EXPECT_EQ(image->jobs[0].number, 2);
  EXPECT_EQ(image->jobs[0].step, 0);
  EXPECT_TRUE(world.store().ReadMetrics(store::MetricsOf::kSteps, "job", 0, 10)->empty());
  EXPECT_TRUE(world.store().ReadLogs("job", 0, {}, 10)->empty());
}

TEST(Deletion, LateLinesOfADeletedJobAreNotThoseOfTheNextOneOfItsName) {
  World world;
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  world.Submit("job", 1);
  const WorkerId old = world.job("job").Worker(0);
  ASSERT_TRUE(world.Stop("job").ok());
  world.Exit(1, old, 15);
  ASSERT_TRUE(world.Delete("job").ok());
  ASSERT_TRUE(world.Attach(1, Hello("a", 0)).ok());
  const auto log = [&](const WorkerId& worker, const std::string& line) {
    world.cluster().Handle(1, LogLines{worker, {line}}, world.now());
    world.Commit();
  };
  world.Submit("job", 1);
  log(old, "late, while it waits");
  ASSERT_TRUE(world.Attach(1, Hello("a", 1)).ok());
  const WorkerId next = world.job("job").Worker(0);
  ASSERT_EQ(next.generation, old.generation);
  log(old, "late, while it runs");
  log(next, "its own");
  world.Exit(1, next, 9);
  ASSERT_EQ(world.job("job").generation, 2);
  log(next, "of its former generation");
  const auto lines = world.store().ReadLogs("job", 0, {}, 10);
  ASSERT_EQ(lines->size(), 2);
  EXPECT_EQ((*lines)[0].text, "its own");
  EXPECT_EQ((*lines)[1].text, "of its former generation");
}

TEST(Deletion, AJobOfTheSameNameDoesNotWaitForTheStrangersOfTheDeletedOne) {
  World world;
  world.Start("job", 1);
  const WorkerId id = world.job("job").Worker(0);
  world.Restart();
  AgentHello hello = Hello("a", 2);
  hello.running = {{id, 7}, {{"job", 5, 0, "from the future"}, 77}};
  ASSERT_TRUE(world.Attach(1, hello).ok());
  ASSERT_TRUE(world.Stop("job").ok());
  world.Exit(1, id, 15);
  ASSERT_TRUE(world.job("job").terminal());
  ASSERT_TRUE(world.Delete("job").ok());
  world.Submit("job", 1);
  EXPECT_EQ(world.job("job").generation, 1) << "the stranger is not its own";
}

TEST(Deletion, AJobThatComesAndGoesInOneTransactionLeavesItsNumberOnly) {
  World world;
  Cluster& cluster = world.cluster();
  ASSERT_TRUE(cluster.Submit({.name = "x"}, world.now()).ok());
  ASSERT_TRUE(cluster.Command({.job_id = "x-1"}, world.now()).ok());
  ASSERT_TRUE(cluster.Delete({"x-1", "", "", ""}, world.now()).ok());
  world.Commit();
  EXPECT_TRUE(world.store().Load()->jobs.empty());
  world.Restart();
  EXPECT_EQ(*world.cluster().Submit({.name = "x"}, world.now()), "x-2");
}

TEST(Deletion, TheLogNamesWhoDeletedAJobAndWhoCancelledAnOperation) {
  World world;
  const auto said = [&](const std::string& text) {
    return std::any_of(world.effects.begin(), world.effects.end(), [&](const Effect& effect) {
      const auto* say = std::get_if<LogMessage>(&effect);
      return say != nullptr && say->text == text;
    });
  };
  world.Submit("job", 1);
  ASSERT_TRUE(world.Command("job", {.kind = v1::Operation::REFRESH}).ok());
  const CommandRequest cancel{
      .job_id = "job",
      .command = {.kind = v1::Operation::CANCEL, .target = 1, .requester = "operator/bob"}};
  ASSERT_TRUE(world.cluster().Cancel(cancel, world.now()).ok());
  ASSERT_TRUE(world.Stop("job").ok());
  ASSERT_TRUE(world.cluster().Delete({"job", "", "f", "", "operator/alice"}, world.now()).ok());
  world.Commit();
  EXPECT_TRUE(said("operation 'job/1' was cancelled by operator/bob"));
  EXPECT_TRUE(said("job 'job' was deleted by operator/alice"));
}

}  // namespace
}  // namespace muster::cluster
