// Failed saves, exports that ask for permission, and submissions that would replace another user's
// file.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/world.h"

namespace muster::cluster {
namespace {

std::vector<std::string> Granted(World& world) {
  std::vector<std::string> paths;
  for (const auto& granted : world.Orders<SendToWorker, ExportGranted>())
    paths.push_back(granted.path);
  world.effects.clear();
  return paths;
}

size_t TimesSaid(const World& world, const std::string& text) {
  size_t times = 0;
  for (const Effect& effect : world.effects) {
    const auto* say = std::get_if<LogMessage>(&effect);
    if (say != nullptr && say->text == text) ++times;
  }
  return times;
}

using Paths = std::vector<std::string>;

TEST(Saves, AFailureIsSeenIsAnEventOnceAndSurvivesTheCoordinator) {
  World world;
  world.Start("job", 1);
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = CheckpointFailed{5, "full"}}).ok());
  ASSERT_TRUE(world.Report(10, {.sequence = 3, .what = StepDone{.step = 6}}).ok());
  EXPECT_EQ(TimesSaid(world, "job 'job': full"), 1);
  for (int times = 0; times < 2; ++times) {
    const jobs::Job& job = world.job("job");
    ASSERT_TRUE(job.save_failure.has_value());
    EXPECT_EQ(job.save_failure->step, 5);
    ASSERT_EQ(job.events.size(), 1);
    EXPECT_EQ(job.events[0].reason, "SAVE_FAILED");
    EXPECT_EQ(job.reason_code, "SAVE_FAILED");
    world.Restart();
    world.Commit();
  }
  ASSERT_TRUE(world.AttachWorker(10, world.job("job").Worker(0)).ok());
  ASSERT_TRUE(world.Report(10, {.sequence = 4, .what = CheckpointWritten{10, "p"}}).ok());
  world.Restart();
  EXPECT_FALSE(world.job("job").save_failure.has_value());
  ASSERT_EQ(world.job("job").events.size(), 2);
  EXPECT_EQ(world.job("job").events[1].number, 2);
}

TEST(Saves, ARankThatHasSaidThatTheLastOneFailedNeedsNoLeaseAnyMore) {
  for (const bool restarted : {false, true}) {
    World world;
    world.Start("job", 2);
    PeerStreamId agent = 1;
    ASSERT_TRUE(world
                    .Report(11, {.sequence = 2,
                                 .what = jobs::ReportedFailure{.reason = "full",
                                                               .permanent = true,
                                                               .code = "FINAL_SAVE_FAILED"}})
                    .ok());
    if (restarted) {
      world.Restart();
      AgentHello back = Hello("a", 2);
      for (uint32_t rank : {0, 1}) back.running.push_back({world.job("job").Worker(rank), 1});
      ASSERT_TRUE(world.Attach(agent = 2, back).ok());
      for (uint32_t rank : {0, 1}) {
        ASSERT_TRUE(world.AttachWorker(20 + rank, world.job("job").Worker(rank)).ok());
      }
    }
    for (int second = 0; second < 25; ++second) {
      world.cluster().AgentHeard(agent, world.now());
      EXPECT_TRUE(world.cluster().WorkerBeat(restarted ? 20 : 10, {.step = 1}, world.now()));
      world.Pass(1);
    }
    EXPECT_TRUE(world.Stops().empty()) << restarted;
    EXPECT_TRUE(world.AttachWorker(31, world.job("job").Worker(1)).ok()) << "it is not given up";
    world.Pass(6);
    EXPECT_FALSE(world.Stops().empty()) << "it has 30 s";
  }
}

TEST(Exports, TheCurrentRank0IsGrantedAndToldAgainWhereItMayNotHaveHeard) {
  World world;
  world.Start("job", 2);
  ASSERT_TRUE(world.Report(11, {.sequence = 2, .what = ExportReady{"/out"}}).ok());
  EXPECT_EQ(Granted(world), Paths());
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = ExportReady{"/out"}}).ok());
  EXPECT_EQ(Granted(world), Paths({"/out"}));
  const WorkerId id = world.job("job").Worker(0);
  world.Restart();
  ASSERT_TRUE(world.AttachWorker(20, id).ok());
  EXPECT_EQ(Granted(world), Paths({"/out"}));
  ASSERT_TRUE(world.Report(20, {.sequence = 3, .what = Exported{"/out"}}).ok());
  EXPECT_EQ(world.job("job").exported_path, "/out");
  ASSERT_TRUE(world.AttachWorker(21, id).ok());
  EXPECT_EQ(Granted(world), Paths()) << "it is done";
}

TEST(Exports, AGenerationThatIsEndingOrOverIsNotGranted) {
  World world;
  world.Start("job", 2);
  const WorkerId old = world.job("job").Worker(0);
  world.Exit(1, world.job("job").Worker(1), 9);
  ASSERT_TRUE(world.job("job").ending());
  world.effects.clear();
  ASSERT_TRUE(world.Report(10, {.sequence = 2, .what = ExportReady{"/out"}}).ok());
  EXPECT_EQ(Granted(world), Paths());
  world.Exit(1, old, 9);
  ASSERT_TRUE(world.Report(10, {.sequence = 3, .what = ExportReady{"/out"}}).ok());
  EXPECT_EQ(Granted(world), Paths());
}

TEST(Exports, ARefusedSubmissionIsNoJobButARepeatOfAGoodOneIsItsJob) {
  World world;
  Submission submission{.job_id = "a", .name = "a", .request_id = "r", .fingerprint = "f"};
  submission.plan.world_size = 1;
  submission.refusal = absl::InvalidArgumentError("somebody else's");
  EXPECT_EQ(world.cluster().Submit(submission, world.now()).status(), submission.refusal);
  world.Commit();
  EXPECT_EQ(world.cluster().Find("a"), nullptr);
  submission.refusal = absl::OkStatus();
  EXPECT_EQ(*world.cluster().Submit(submission, world.now()), "a");
  world.Commit();
  // A file of another user is there since then. The answer is still the first one.
  submission.refusal = absl::InvalidArgumentError("somebody else's");
  EXPECT_EQ(*world.cluster().Submit(submission, world.now()), "a");
}

}  // namespace
}  // namespace muster::cluster
