// The checkpoint from which a session continues: a named checkpoint, or a found one.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/checkpoint/epoch.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/job/job.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/reports/coordinator_interface.h"
#include "worker/train/reports/test_commands.h"
#include "worker/train/session/session_fixture.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

TEST_F(SessionTest, AResumedRunIsBitwiseTheUndisturbedOne) {
  Job job = SmallJob();
  job.stages = {FitStage{8, 3}, FitStage{4, 0}, ValidateStage{}};
  const auto undisturbed = RunSessions(job, 2);
  job.checkpoint = Every(5);
  const auto first = RunSessions(job, 2, 1, {}, /*stop_after=*/6);
  ASSERT_TRUE(first->ends[0].ok()) << first->ends[0].status();
  EXPECT_TRUE(first->ends[1]->stopped);
  const auto second = RunSessions(job, 2, 2, first->coordinator.checkpoints());
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  EXPECT_EQ(second->ends[0]->step, 12);
  auto losses = first->coordinator.losses();
  EXPECT_LT(losses.size(), 12u);
  EXPECT_LT(second->coordinator.losses().size(), 12u);
  for (const auto& [step, loss] : second->coordinator.losses()) losses[step] = loss;
  EXPECT_EQ(losses, undisturbed->coordinator.losses());
  EXPECT_EQ(second->coordinator.validations().at(12),
            undisturbed->coordinator.validations().at(12));
}

TEST_F(SessionTest, AJobGoesOnInAnotherStrategyAtAnotherWorldSize) {
  Job job = SmallJob();
  // Dropout depends on the rank. Without dropout, a sample has the same loss on every rank.
  *job.spec.mutable_model() = models::SpecFromText(
      "gpt2",
      R"({"vocab_size": 29, "context": 8, "layers": 2, "heads": 2, "width": 16, "dropout": 0})");
  job.optimizer = OptimizerConfig{1e-2, optim::AdamWOptions{.eps = 1e-5}};
  job.batch = {.per_rank = 6, .accumulate = 2};
  const auto undisturbed = RunSessions(job, 1);
  job.checkpoint = Every(0);
  const parallel::ShardedDdpOptions sharded{.bucket_bytes = 4096, .first_bucket_bytes = 1024};
  const struct {
    int world_size;
    StrategyConfig strategy;
    BatchConfig batch;  // twelve samples per step
  } chain[] = {{1, job.strategy, {.per_rank = 6, .accumulate = 2}},
               {4, sharded, {.per_rank = 3, .accumulate = 1}},
               {2, job.strategy, {.per_rank = 3, .accumulate = 2}},
               {3, sharded, {.per_rank = 2, .accumulate = 2}}};
  std::map<int64_t, double> losses;
  std::vector<std::string> checkpoints;
  int64_t generation = 0;
  for (const auto& [world_size, strategy, batch] : chain) {
    job.strategy = strategy;
    job.batch = batch;
    job.stages = {FitStage{3 * ++generation, 0}};
    const auto run = RunSessions(job, world_size, generation, checkpoints);
    ASSERT_TRUE(run->ends.back().ok()) << run->ends.back().status();
    EXPECT_EQ(run->coordinator.losses().size(), 3u);
    for (const auto& [step, loss] : run->coordinator.losses()) losses[step] = loss;
    checkpoints = run->coordinator.checkpoints();
  }
  ASSERT_EQ(losses.size(), 12u);
  // The sums are divided differently.
  for (const auto& [step, loss] : undisturbed->coordinator.losses()) {
    EXPECT_NEAR(losses[step], loss, 1e-5) << step;
  }
}

TEST_F(SessionTest, ABrokenCheckpointIsPutAsideAndTheOneBeforeUsed) {
  Job job = SmallJob();
  const auto undisturbed = RunSessions(job, 2);
  job.checkpoint = Every(4);
  const auto first = RunSessions(job, 2, 1, {}, /*stop_after=*/9);
  auto checkpoints = first->coordinator.checkpoints();
  ASSERT_GE(checkpoints.size(), 2u);
  fs::resize_file(fs::path(checkpoints[0]) / "rank-1.safetensors", 100);
  const auto second = RunSessions(job, 2, 2, checkpoints);
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  EXPECT_EQ(second->coordinator.bad(), std::vector<std::string>{checkpoints[0]});
  EXPECT_EQ(second->coordinator.losses().begin()->first, 9);  // from step 8
  EXPECT_EQ(second->coordinator.losses().at(12), undisturbed->coordinator.losses().at(12));
}

TEST_F(SessionTest, ForeignCheckpointsAreRefused) {
  Job job = SmallJob();
  job.checkpoint = Every(4);
  const auto first = RunSessions(job, 1);
  ASSERT_EQ(first->coordinator.checkpoints().size(), 3u);
  // Another job of the same id under another coordinator, which looks first in generation 1 or 2.
  job_instance_ = "another";
  for (int64_t generation : {1, 2}) {
    const auto foreign = RunSessions(job, 1, generation);
    EXPECT_EQ(foreign->ends[0].status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(fs::exists(first->coordinator.checkpoints()[0]));
  }
}

// The writer was killed before its report, or the coordinator lost its newest rows.
TEST_F(SessionTest, UnrecordedCheckpointsThatContinueTheCourseAreAdopted) {
  Job job = SmallJob();
  job.checkpoint = Every(4);
  const auto undisturbed = RunSessions(SmallJob(), 2);
  const auto first = RunSessions(job, 2, 1, {}, /*stop_after=*/9);
  const auto written = first->coordinator.checkpoints();  // of the stop, of step 8, of step 4
  ASSERT_EQ(written.size(), 3u);
  const auto second = RunSessions(job, 2, 2, {written[2]});
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  EXPECT_EQ(second->coordinator.started().checkpoint_path, written[0]);
  const auto& found = second->coordinator.found();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].path, written[1]);
  EXPECT_EQ(found[0].reason, "");
  EXPECT_EQ(found[1].path, written[0]);
  EXPECT_EQ(found[1].reason, "");
  for (const std::string& path : written) EXPECT_TRUE(fs::exists(path)) << path;
  auto losses = first->coordinator.losses();
  for (const auto& [step, loss] : second->coordinator.losses()) losses[step] = loss;
  EXPECT_EQ(losses, undisturbed->coordinator.losses());
}

// The coordinator has not heard how the commands ended: the reports were lost with the process that
// wrote the checkpoint.
TEST_F(SessionTest, CommandsThatAnAdoptedCheckpointHasAreToldAgainAndNotDoneAgain) {
  Job job = SmallJob();
  job.checkpoint = Every(4);
  const auto rate = [](int64_t number, int64_t at_step, double value) {
    return Numbered(number, RateOf(value), at_step);
  };
  commands_ = {rate(1, 3, 2e-3), rate(2, 7, 3e-3), rate(3, 10, 4e-3), Numbered(4, CancelOf(3)),
               rate(5, 11, 5e-3)};
  const auto undisturbed = RunSessions(job, 2);
  ASSERT_TRUE(undisturbed->ends[0].ok()) << undisturbed->ends[0].status();
  for (const std::string& path : {undisturbed->coordinator.checkpoints()[0]}) {
    fs::remove_all(path);  // the last checkpoint
  }
  // The coordinator had not heard of this command's end and ended it with the former attempt.
  commands_[0].mutable_none();
  const auto second = RunSessions(job, 2, 2);
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  EXPECT_EQ(second->coordinator.started().step, 8);
  EXPECT_EQ(second->coordinator.started().last_command, 5);
  EXPECT_FALSE(second->coordinator.finished().contains(1));
  EXPECT_EQ(second->coordinator.applied(),
            (std::map<int64_t, int64_t>{{1, 3}, {2, 7}, {4, 0}, {5, 11}}));
  EXPECT_TRUE(second->coordinator.finished().at(2).ok());
  EXPECT_EQ(second->coordinator.finished().at(3).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(second->coordinator.losses().at(12), undisturbed->coordinator.losses().at(12));
}

TEST_F(SessionTest, WhatDoesNotCountAnyMoreIsKeptAndNotGoneOnFrom) {
  Job job = SmallJob();
  job.checkpoint = Every(4);
  const auto first = RunSessions(job, 1, 1, {}, /*stop_after=*/9);
  const auto written = first->coordinator.checkpoints();
  ASSERT_EQ(written.size(), 3u);
  start_.checkpoints.retired = {written[0]};
  const auto second = RunSessions(job, 1, 2, {written[2]});
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  EXPECT_EQ(second->coordinator.started().checkpoint_path, written[1]);
  start_ = {};
  start_.checkpoints.from_scratch = true;
  const auto third = RunSessions(job, 1, 3, {written[2]});
  ASSERT_TRUE(third->ends[0].ok()) << third->ends[0].status();
  EXPECT_EQ(third->coordinator.started().checkpoint_path, "");
  EXPECT_EQ(third->coordinator.losses().begin()->first, 1);
  for (const auto& found : third->coordinator.found()) {
    EXPECT_EQ(found.reason, "the job was told to start again from step 0");
  }
  for (const std::string& path : written) EXPECT_TRUE(fs::exists(path)) << path;
}

TEST_F(SessionTest, AJobGoesOnFromTheDirectoryThatSomebodyNamed) {
  Job job = SmallJob();
  const auto undisturbed = RunSessions(job, 1);
  job.checkpoint = Every(4);
  const auto first = RunSessions(job, 1, 1, {}, /*stop_after=*/9);
  const std::string copy = folder_ / "copy";
  fs::copy(first->coordinator.checkpoints()[1], copy, fs::copy_options::recursive);
  start_.checkpoints.start_from = copy;
  const auto second = RunSessions(job, 1, 2, first->coordinator.checkpoints());
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  EXPECT_EQ(second->coordinator.started().checkpoint_path, copy);
  EXPECT_EQ(second->coordinator.losses().begin()->first, 9);
  EXPECT_EQ(second->coordinator.losses().at(12), undisturbed->coordinator.losses().at(12));
}

TEST_F(SessionTest, ADirectoryThatCannotBeReadHaltsTheJobAndOneThatDoesNotFitFailsIt) {
  Job job = SmallJob();
  job.checkpoint = Every(4);
  const auto first = RunSessions(job, 2, 1, {}, /*stop_after=*/5);
  const auto written = first->coordinator.checkpoints();
  start_.checkpoints.retired = written;
  start_.checkpoints.start_from = (folder_ / "nowhere").string();
  const auto second = RunSessions(job, 2, 2);
  for (const auto& end : second->ends) {
    EXPECT_EQ(CauseOf(end.status()), Cause::kCheckpointsUnreadable) << end.status();
    EXPECT_NE(std::string(end.status().message()).find(start_.checkpoints.start_from),
              std::string::npos)
        << end.status();
  }

  const std::string copy = folder_ / "copy";
  fs::copy(written[0], copy, fs::copy_options::recursive);
  start_.checkpoints.start_from = copy;
  *job.spec.mutable_model() = models::SpecFromText(
      "gpt2",
      R"({"vocab_size": 29, "context": 8, "layers": 2, "heads": 2, "width": 32, "dropout": 0.1})");
  const auto third = RunSessions(job, 2, 3);
  for (const auto& end : third->ends) {
    EXPECT_EQ(CauseOf(end.status()), Cause::kStartDoesNotFit) << end.status();
    EXPECT_EQ(Classify(end.status(), Phase::kCreate), FailureKind::kPermanent);
  }
  // No user asked for this start.
  start_ = {};
  const auto fourth = RunSessions(job, 2, 4, {written[0]});
  for (const auto& end : fourth->ends) {
    EXPECT_FALSE(end.ok());
    EXPECT_EQ(CauseOf(end.status()), Cause::kNone) << end.status();
  }
  for (const std::string& path : written) EXPECT_TRUE(fs::exists(path)) << path;
}

// A file system is not mounted at a restart.
TEST_F(SessionTest, WithoutAnyReadableCheckpointTheJobDoesNotBeginAnewAndNothingIsChanged) {
  Job job = SmallJob();
  job.checkpoint = Every(4);
  const auto first = RunSessions(job, 2, 1, {}, /*stop_after=*/9);
  const auto written = first->coordinator.checkpoints();
  const fs::path folder = fs::path(written[0]).parent_path();
  fs::rename(folder, folder_ / "away");
  const auto second = RunSessions(job, 2, 2, written);
  const absl::Status status = second->ends[0].status();
  EXPECT_EQ(CauseOf(status), Cause::kCheckpointsUnreadable) << status;
  EXPECT_NE(std::string(status.message()).find(folder.string()), std::string::npos) << status;
  EXPECT_EQ(CauseOf(second->ends[1].status()), Cause::kCheckpointsUnreadable)
      << "whoever is heard first may be the only one";
  EXPECT_TRUE(second->coordinator.bad().empty());
  EXPECT_FALSE(fs::exists(folder)) << "in its place a mount would hide the rest";

  fs::rename(folder_ / "away", folder);
  const auto third = RunSessions(job, 2, 3, written);
  ASSERT_TRUE(third->ends[0].ok()) << third->ends[0].status();
  EXPECT_EQ(third->coordinator.started().checkpoint_path, written[0]);
  for (const std::string& path : written) EXPECT_TRUE(fs::exists(path)) << path;
}

TEST_F(SessionTest, WhereAllAreDamagedTheJobDoesNotBeginAnewEither) {
  Job job = SmallJob();
  job.checkpoint = Every(4);
  const auto first = RunSessions(job, 2, 1, {}, /*stop_after=*/5);
  const auto written = first->coordinator.checkpoints();
  for (const std::string& path : written) {
    fs::resize_file(fs::path(path) / "rank-1.safetensors", 100);
  }
  const auto second = RunSessions(job, 2, 2, written);
  EXPECT_EQ(CauseOf(second->ends[0].status()), Cause::kCheckpointsUnreadable)
      << second->ends[0].status();
  EXPECT_EQ(second->coordinator.bad(), written);
  // No checkpoint is left that could be named.
  start_.checkpoints.had_others = true;
  const auto third = RunSessions(job, 2, 3);
  EXPECT_EQ(CauseOf(third->ends[0].status()), Cause::kCheckpointsUnreadable)
      << third->ends[0].status();
  EXPECT_TRUE(third->coordinator.losses().empty());
}

TEST_F(SessionTest, AGenerationThatFindsANewerOneInTheFolderEnds) {
  Job job = SmallJob();
  job.checkpoint = Every(4);
  const auto newer = RunSessions(job, 2, 7, {}, /*stop_after=*/5);
  ASSERT_TRUE(newer->ends[0].ok()) << newer->ends[0].status();
  const auto older = RunSessions(job, 2, 4);
  const absl::Status status = older->ends[0].status();
  EXPECT_EQ(CauseOf(status), Cause::kStaleEpoch) << status;
  EXPECT_EQ(checkpoint::NewerGeneration(status), 7);
  EXPECT_EQ(Classify(status, Phase::kCreate), FailureKind::kTransient);
  EXPECT_EQ(Classify(older->ends[1].status(), Phase::kCreate), FailureKind::kConsequence);
}

}  // namespace
}  // namespace muster::train
