#include "coordinator/service/retry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/jobspec/jobspec.h"
#include "common/rpc/error.h"
#include "common/status/status.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/coordinator_fixture.h"

namespace muster::service {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

// Returns a job that FAILED after step 8. Its checkpoints of steps 4 and 8 count, and its
// checkpoint of step 2 does not.
jobs::Job FailedJob() {
  jobs::Job job;
  job.id = "job";
  job.spec = jobspec::ResolveDefaults(Spec()).SerializeAsString();
  job.checkpoints = {{.step = 4, .path = "/ckpt/job/step-4-g1"},
                     {.step = 8, .path = "/ckpt/job/step-8-g1"}};
  job.found_checkpoints = {{.step = 2, .path = "/ckpt/job/step-2-g1"}};
  return job;
}

cluster::CommandRequest Retry(const std::vector<std::string>& settings,
                              std::optional<uint64_t> from_step = std::nullopt) {
  v1::RetryJobRequest request;
  request.mutable_settings()->Add(settings.begin(), settings.end());
  request.set_settings_folder("/here");
  if (from_step.has_value()) request.set_from_step(*from_step);
  cluster::CommandRequest command;
  AddRetry(FailedJob(), request, {}, &command);
  return command;
}

std::vector<std::string> RefusedPaths(const cluster::CommandRequest& command) {
  std::vector<std::string> paths;
  const v1::SpecProblems problems = Problems(command.refusal);
  for (const auto& problem : problems.problems()) paths.push_back(problem.path());
  return paths;
}

TEST(Retry, WithoutSettingsChangesNothing) {
  const cluster::CommandRequest command = Retry({});
  EXPECT_TRUE(command.refusal.ok());
  EXPECT_TRUE(command.settings.changes.empty());
  EXPECT_EQ(command.from, "");
}

TEST(Retry, HasTheNewValuesAndNamesWhatChanges) {
  const cluster::CommandRequest command =
      Retry({"optimizer.sgd.lr=0.01", "restart.max_restarts=7", "export.path=w", "priority=0"});
  ASSERT_TRUE(command.refusal.ok()) << command.refusal;
  v1::JobSpec spec;
  ASSERT_TRUE(spec.ParseFromString(command.settings.spec));
  EXPECT_EQ(spec.optimizer().sgd().lr(), 0.01);
  EXPECT_EQ(spec.export_().path(), "/here/w");
  EXPECT_EQ(command.settings.plan.max_restarts, 7);
  std::vector<std::string> paths;
  for (const auto& change : command.settings.changes) paths.push_back(change.path);
  EXPECT_THAT(paths, UnorderedElementsAre("export.from", "export.path", "optimizer.sgd.lr",
                                          "restart.max_restarts"));
}

TEST(Retry, RefusesEverythingThatMayNotChangeAtOnceWithItsSetting) {
  const cluster::CommandRequest command =
      Retry({"name=other", "world_size=3", "optimizer.sgd.lr=0.01", "seed=5"});
  EXPECT_EQ(RefusalReason(command.refusal), "JOB_SPEC_INVALID");
  EXPECT_THAT(RefusedPaths(command), UnorderedElementsAre("name", "world_size", "seed"));
  EXPECT_EQ(Problems(command.refusal).problems(0).source(), "--set name");
  EXPECT_TRUE(command.settings.changes.empty());
}

TEST(Retry, RefusesWrongValuesAsAJobFile) {
  EXPECT_THAT(RefusedPaths(Retry({"optimizer.sgd.lr=fast", "batch.per_rank=0"})),
              UnorderedElementsAre("optimizer.sgd.lr", "batch.per_rank"));
  EXPECT_THAT(Message(Retry({"optimizer.adamw.lr=1"}).refusal), HasSubstr("only one of"));
}

TEST(Retry, RefusesAnEndBeforeItsBeginning) {
  EXPECT_THAT(RefusedPaths(Retry({"stages[0].fit.steps=8"})), UnorderedElementsAre("stages"));
  EXPECT_TRUE(Retry({"stages[0].fit.steps=9"}).refusal.ok());
  EXPECT_TRUE(Retry({"stages[0].fit.steps=8"}, 4).refusal.ok());
}

// The job has trained all of its steps, and failed after them.
TEST(Retry, AJobWhoseStepsAreDoneMayGetOtherSettings) {
  jobs::Job done = FailedJob();
  v1::JobSpec spec;
  ASSERT_TRUE(spec.ParseFromString(done.spec));
  done.checkpoints.push_back({.step = *jobspec::TotalSteps(spec), .path = "/ckpt/job/last"});
  v1::RetryJobRequest request;
  request.add_settings("export.path=w");
  request.set_settings_folder("/here");
  cluster::CommandRequest command;
  AddRetry(done, request, {}, &command);
  EXPECT_TRUE(command.refusal.ok()) << command.refusal;
}

TEST(Retry, RefusesFewerEpochsThanAreDone) {
  jobs::Job job = FailedJob();
  v1::JobSpec spec;
  ASSERT_TRUE(spec.ParseFromString(job.spec));
  spec.mutable_stages(0)->mutable_fit()->set_epochs(4);
  job.spec = spec.SerializeAsString();
  job.fit_steps = 16;  // 4 in each epoch
  const auto refused = [&job](const std::string& setting) {
    v1::RetryJobRequest request;
    request.add_settings(setting);
    cluster::CommandRequest command;
    AddRetry(job, request, {}, &command);
    return RefusedPaths(command);
  };
  EXPECT_THAT(refused("stages[0].fit.epochs=2"), UnorderedElementsAre("stages"));
  EXPECT_THAT(refused("stages[0].fit.epochs=3"), testing::IsEmpty());
}

TEST(Retry, AnExportOverTheFileOfSomebodyElseIsRefused) {
  const std::string path = testing::TempDir() + "/of_somebody_else";
  std::ofstream(path) << "text";
  EXPECT_THAT(RefusedPaths(Retry({"export.path=" + path})), UnorderedElementsAre("export.path"));
}

TEST(Retry, BeginsWithTheCheckpointOfAStep) {
  EXPECT_EQ(Retry({}, 4).from, "/ckpt/job/step-4-g1");
  EXPECT_EQ(Retry({}, 2).from, "/ckpt/job/step-2-g1");
  EXPECT_TRUE(Retry({}, 0).from_scratch);
  const cluster::CommandRequest command = Retry({}, 5);
  EXPECT_EQ(RefusalReason(command.refusal), "CHECKPOINT_NOT_FOUND");
  EXPECT_THAT(Message(command.refusal), HasSubstr("those of steps 2, 4, 8"));
}

}  // namespace
}  // namespace muster::service
