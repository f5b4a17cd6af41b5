// Sessions of N ranks as threads over comm/local, on real token files and real checkpoints.
#include "worker/train/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "common/activity/activity.h"
#include "worker/checkpoint/epoch.h"
#include "worker/train/failure.h"
#include "worker/train/rank_threads.h"

namespace muster::train {
namespace {

namespace fs = std::filesystem;

// What rank 0 reported, and commands that appear once a step has been reported.
class Outside : public CommandSource, public EventSink {
 public:
  int64_t Newest() const override {
    std::lock_guard lock(mutex_);
    if (!commands_.empty()) return static_cast<int64_t>(commands_.size());
    return stop_after_step_ > 0 && !losses_.empty() && losses_.rbegin()->first >= stop_after_step_;
  }
  Command Get(int64_t number) const override {
    if (!commands_.empty()) return commands_[number - 1];
    return {.number = number, .what = StopCommand()};
  }
  void Report(const Event& event) override {
    std::lock_guard lock(mutex_);
    if (const auto* step = std::get_if<StepFinished>(&event)) {
      losses_[step->step] = step->loss;
    } else if (const auto* validated = std::get_if<Validated>(&event)) {
      validations_[validated->step] = validated->loss;
    } else if (const auto* written = std::get_if<CheckpointWritten>(&event)) {
      checkpoints_.insert(checkpoints_.begin(), written->path);
    } else if (const auto* bad = std::get_if<CheckpointBad>(&event)) {
      bad_.push_back(bad->path);
    } else if (const auto* found = std::get_if<CheckpointsFound>(&event)) {
      found_ = found->found;
    } else if (const auto* started = std::get_if<SessionStarted>(&event)) {
      started_ = *started;
    } else if (const auto* applied = std::get_if<CommandApplied>(&event)) {
      applied_[applied->number] = applied->step;
    } else if (const auto* finished = std::get_if<CommandFinished>(&event)) {
      finished_[finished->number] = finished->status;
    }
  }
  void Progress(int64_t, const char*, const char*) override {}

  // They are there from the start, in the place of a stop.
  void SetCommands(const std::vector<Command>& commands) { commands_ = commands; }
  void StopAfterStep(int64_t step) { stop_after_step_ = step; }
  int64_t newest_step() const {
    std::lock_guard lock(mutex_);
    return losses_.empty() ? 0 : losses_.rbegin()->first;
  }
  std::map<int64_t, double> losses() const { return losses_; }
  std::map<int64_t, double> validations() const { return validations_; }
  std::vector<std::string> checkpoints() const { return checkpoints_; }  // newest first
  std::vector<std::string> bad() const { return bad_; }
  std::vector<CheckpointsFound::One> found() const { return found_; }
  SessionStarted started() const { return started_; }
  std::map<int64_t, int64_t> applied() const { return applied_; }
  std::map<int64_t, absl::Status> finished() const { return finished_; }

 private:
  mutable std::mutex mutex_;
  int64_t stop_after_step_ = 0;
  std::map<int64_t, double> losses_;
  std::map<int64_t, double> validations_;
  std::vector<std::string> checkpoints_;
  std::vector<std::string> bad_;
  std::vector<CheckpointsFound::One> found_;
  SessionStarted started_;
  std::vector<Command> commands_;
  std::map<int64_t, int64_t> applied_;
  std::map<int64_t, absl::Status> finished_;
};

struct Result {
  std::vector<absl::StatusOr<SessionEnd>> ends;
  Outside outside;
  std::deque<activity::Activity> activities;  // by rank
};

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(::testing::TempDir()) / info->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    WriteTokens("train.bin", 1200);
    WriteTokens("validate.bin", 90);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void WriteTokens(const std::string& name, int count) {
    std::ofstream file(folder_ / name, std::ios::binary);
    for (int i = 0; i < count; ++i) {
      const uint16_t token = (i * i) % 29;  // repeats, so it can be learned
      file.write(reinterpret_cast<const char*>(&token), 2);
    }
  }

  // Two layers, dropout, clipping, accumulation: everything that could carry hidden state.
  Job SmallJob() const {
    Job job;
    job.seed = 7;
    job.model.kind = "gpt2";
    job.model.options_json =
        R"({"vocab_size": 29, "context": 8, "layers": 2, "heads": 2, "width": 16, "dropout": 0.1})";
    job.train = TokenFiles{{folder_ / "train.bin"}};
    job.validate = TokenFiles{{folder_ / "validate.bin"}};
    job.strategy = parallel::DdpOptions{.bucket_bytes = 4096, .first_bucket_bytes = 1024};
    job.optimizer = OptimizerConfig{1e-2, optim::AdamWOptions{}};
    job.schedule = optim::WarmupCosine{.warmup_steps = 3, .total_steps = 12};
    job.batch = {.per_rank = 3, .accumulate = 2};
    job.clip_grad_norm = 0.5;
    job.stages = {FitStage{12, 0}};
    return job;
  }

  CheckpointConfig Every(int64_t steps) const { return {folder_ / "ckpt", steps}; }

  // Runs all ranks to their end. `kill_rank` ends without taking part at all.
  std::unique_ptr<Result> RunSessions(const Job& job, int world_size, int64_t generation = 1,
                                      std::vector<std::string> checkpoints = {},
                                      int64_t stop_after = 0, int kill_rank = -1) {
    auto result = std::make_unique<Result>();
    result->outside.StopAfterStep(stop_after);
    result->outside.SetCommands(commands_);
    result->ends.assign(world_size, absl::UnknownError("did not run"));
    for (int rank = 0; rank < world_size; ++rank) result->activities.emplace_back();
    RunRanks(world_size, [&](int rank, comm::Communicator& control, comm::Communicator& data) {
      if (rank == kill_rank) return;
      const activity::Scope scope(&result->activities[rank]);
      SessionParts parts = start_;
      parts.control = &control;
      parts.gradients = &data;
      parts.commands = &result->outside;
      parts.events = &result->outside;
      parts.checkpoints = checkpoints;
      auto session =
          Session::Create({"job", job_instance_, generation, rank, "process-" + std::to_string(rank)}, job, parts);
      result->ends[rank] = session.ok() ? (*session)->Run() : session.status();
    });
    return result;
  }

  fs::path folder_;
  std::string job_instance_ = "this";
  std::vector<Command> commands_;
  SessionParts start_{};  // what it says of checkpoints that do not count, and of where to start
};

TEST_F(SessionTest, EachMicroBatchAndEachBatchOfAnEvaluationMovesOnItsOwnRank) {
  const auto count = [this](int64_t steps, int64_t per_rank, bool validate) {
    Job job = SmallJob();
    job.stages = {FitStage{steps, 0}};
    if (validate) job.stages.push_back(ValidateStage{});
    job.batch.per_rank = per_rank;
    const auto run = RunSessions(job, 2);
    EXPECT_TRUE(run->ends[0].ok() && run->ends[1].ok()) << run->ends[0].status();
    EXPECT_GT(run->activities[1].count(), 0u);
    return run->activities[0].count();
  };
  const uint64_t two_steps = count(2, 3, false);
  // Two micro-batches a step, forward and backward of each.
  EXPECT_GE(count(4, 3, false), two_steps + 2 * 4);
  // 11 samples: 6 of them on this rank.
  EXPECT_GE(count(2, 3, true), two_steps + 2);
}

TEST_F(SessionTest, TrainsToTheEndAtEveryWorldSize) {
  for (int world_size = 1; world_size <= 4; ++world_size) {
    const auto run = RunSessions(SmallJob(), world_size);
    for (const auto& end : run->ends) {
      ASSERT_TRUE(end.ok()) << end.status();
      EXPECT_EQ(end->step, 12);
      EXPECT_FALSE(end->stopped);
    }
    ASSERT_EQ(run->outside.losses().size(), 12u);
    EXPECT_LT(run->outside.losses().at(12), run->outside.losses().at(1));
  }
}

TEST_F(SessionTest, ValidationChangesNothingInTraining) {
  Job with = SmallJob();
  with.stages = {ValidateStage{}, FitStage{12, 2}, ValidateStage{}};
  const auto plain = RunSessions(SmallJob(), 2);
  const auto validated = RunSessions(with, 2);
  ASSERT_TRUE(validated->ends[0].ok()) << validated->ends[0].status();
  EXPECT_EQ(validated->outside.validations().size(), 7u);
  EXPECT_EQ(plain->outside.losses(), validated->outside.losses());
}

TEST_F(SessionTest, ValidationIsTheSameMeanAtEveryWorldSize) {
  Job job = SmallJob();
  job.stages = {ValidateStage{}};
  job.optimizer.reset();
  job.train.reset();
  const auto alone = RunSessions(job, 1);
  ASSERT_TRUE(alone->ends[0].ok()) << alone->ends[0].status();
  const double expected = alone->outside.validations().at(0);
  for (int world_size = 2; world_size <= 4; ++world_size) {
    // 11 samples: at 2 to 4 ranks some rank has fewer. Sums differ in their order only.
    EXPECT_NEAR(RunSessions(job, world_size)->outside.validations().at(0), expected, 1e-6);
  }
}

TEST_F(SessionTest, AResumedRunIsBitwiseTheUndisturbedOne) {
  Job job = SmallJob();
  job.stages = {FitStage{8, 3}, FitStage{4, 0}, ValidateStage{}};
  const auto undisturbed = RunSessions(job, 2);
  job.checkpoint = Every(5);
  const auto first = RunSessions(job, 2, 1, {}, /*stop_after=*/6);
  ASSERT_TRUE(first->ends[0].ok()) << first->ends[0].status();
  EXPECT_TRUE(first->ends[1]->stopped);
  const auto second = RunSessions(job, 2, 2, first->outside.checkpoints());
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  EXPECT_EQ(second->ends[0]->step, 12);
  auto losses = first->outside.losses();
  EXPECT_LT(losses.size(), 12u);
  EXPECT_LT(second->outside.losses().size(), 12u);
  for (const auto& [step, loss] : second->outside.losses()) losses[step] = loss;
  EXPECT_EQ(losses, undisturbed->outside.losses());
  EXPECT_EQ(second->outside.validations().at(12), undisturbed->outside.validations().at(12));
}

TEST_F(SessionTest, AJobGoesOnInAnotherStrategyAtAnotherWorldSize) {
  Job job = SmallJob();
  // Without dropout, whose numbers depend on the rank, a sample counts the same wherever it is.
  job.model.options_json = R"({"vocab_size": 29, "context": 8, "layers": 2, "heads": 2, "width": 16, "dropout": 0})";
  job.optimizer = OptimizerConfig{1e-2, optim::AdamWOptions{.eps = 1e-5}};
  job.batch = {.per_rank = 6, .accumulate = 2};
  const auto undisturbed = RunSessions(job, 1);
  job.checkpoint = Every(0);
  const parallel::ShardedDdpOptions sharded{.bucket_bytes = 4096, .first_bucket_bytes = 1024};
  const struct {
    int world_size;
    StrategyConfig strategy;
    BatchConfig batch;  // twelve samples in each step
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
    EXPECT_EQ(run->outside.losses().size(), 3u);
    for (const auto& [step, loss] : run->outside.losses()) losses[step] = loss;
    checkpoints = run->outside.checkpoints();
  }
  ASSERT_EQ(losses.size(), 12u);
  // Sums are cut elsewhere.
  for (const auto& [step, loss] : undisturbed->outside.losses()) EXPECT_NEAR(losses[step], loss, 1e-5) << step;
}

TEST_F(SessionTest, ABrokenCheckpointIsPutAsideAndTheOneBeforeUsed) {
  Job job = SmallJob();
  const auto undisturbed = RunSessions(job, 2);
  job.checkpoint = Every(4);
  const auto first = RunSessions(job, 2, 1, {}, /*stop_after=*/9);
  auto checkpoints = first->outside.checkpoints();
  ASSERT_GE(checkpoints.size(), 2u);
  fs::resize_file(fs::path(checkpoints[0]) / "rank-1.safetensors", 100);
  const auto second = RunSessions(job, 2, 2, checkpoints);
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  EXPECT_EQ(second->outside.bad(), std::vector<std::string>{checkpoints[0]});
  EXPECT_EQ(second->outside.losses().begin()->first, 9);  // from step 8
  EXPECT_EQ(second->outside.losses().at(12), undisturbed->outside.losses().at(12));
}

TEST_F(SessionTest, ForeignCheckpointsAreRefused) {
  Job job = SmallJob();
  job.checkpoint = Every(4);
  const auto first = RunSessions(job, 1);
  ASSERT_EQ(first->outside.checkpoints().size(), 3u);
  // A job of the same id under another coordinator, in whatever generation it first looks.
  job_instance_ = "another";
  for (int64_t generation : {1, 2}) {
    const auto foreign = RunSessions(job, 1, generation);
    EXPECT_EQ(foreign->ends[0].status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(fs::exists(first->outside.checkpoints()[0]));
  }
}

// As where its writer was killed before it could say so, or the coordinator lost its newer rows.
TEST_F(SessionTest, UnrecordedCheckpointsThatContinueTheCourseAreAdopted) {
  Job job = SmallJob();
  job.checkpoint = Every(4);
  const auto undisturbed = RunSessions(SmallJob(), 2);
  const auto first = RunSessions(job, 2, 1, {}, /*stop_after=*/9);
  const auto written = first->outside.checkpoints();  // of the stop, 8, 4
  ASSERT_EQ(written.size(), 3u);
  const auto second = RunSessions(job, 2, 2, {written[2]});
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  EXPECT_EQ(second->outside.started().checkpoint_path, written[0]);
  const auto& found = second->outside.found();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].path, written[1]);
  EXPECT_EQ(found[0].reason, "");
  EXPECT_EQ(found[1].path, written[0]);
  EXPECT_EQ(found[1].reason, "");
  for (const std::string& path : written) EXPECT_TRUE(fs::exists(path)) << path;
  auto losses = first->outside.losses();
  for (const auto& [step, loss] : second->outside.losses()) losses[step] = loss;
  EXPECT_EQ(losses, undisturbed->outside.losses());
}

// The coordinator has not heard how they went: their reports were lost with the process that wrote the checkpoint.
TEST_F(SessionTest, CommandsThatAnAdoptedCheckpointHasAreToldAgainAndNotDoneAgain) {
  Job job = SmallJob();
  job.checkpoint = Every(4);
  const auto rate = [](int64_t number, int64_t at_step, double value) {
    return Command{.number = number, .at_step = at_step, .what = SetLearningRateCommand{value}};
  };
  commands_ = {rate(1, 3, 2e-3), rate(2, 7, 3e-3), rate(3, 10, 4e-3), {.number = 4, .what = CancelCommand{3}},
               rate(5, 11, 5e-3)};
  const auto undisturbed = RunSessions(job, 2);
  ASSERT_TRUE(undisturbed->ends[0].ok()) << undisturbed->ends[0].status();
  for (const std::string& path : {undisturbed->outside.checkpoints()[0]}) fs::remove_all(path);  // of the end
  const auto second = RunSessions(job, 2, 2);
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  EXPECT_EQ(second->outside.started().step, 8);
  EXPECT_EQ(second->outside.started().last_command, 5);
  EXPECT_EQ(second->outside.applied(), (std::map<int64_t, int64_t>{{1, 3}, {2, 7}, {4, 0}, {5, 11}}));
  EXPECT_TRUE(second->outside.finished().at(2).ok());
  EXPECT_EQ(second->outside.finished().at(3).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(second->outside.losses().at(12), undisturbed->outside.losses().at(12));
}

TEST_F(SessionTest, WhatDoesNotCountAnyMoreIsKeptAndNotGoneOnFrom) {
  Job job = SmallJob();
  job.checkpoint = Every(4);
  const auto first = RunSessions(job, 1, 1, {}, /*stop_after=*/9);
  const auto written = first->outside.checkpoints();
  ASSERT_EQ(written.size(), 3u);
  start_.retired_checkpoints = {written[0]};
  const auto second = RunSessions(job, 1, 2, {written[2]});
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  EXPECT_EQ(second->outside.started().checkpoint_path, written[1]);
  start_ = {};
  start_.from_scratch = true;
  const auto third = RunSessions(job, 1, 3, {written[2]});
  ASSERT_TRUE(third->ends[0].ok()) << third->ends[0].status();
  EXPECT_EQ(third->outside.started().checkpoint_path, "");
  EXPECT_EQ(third->outside.losses().begin()->first, 1);
  for (const auto& found : third->outside.found()) EXPECT_EQ(found.reason, "the job was told to begin anew");
  for (const std::string& path : written) EXPECT_TRUE(fs::exists(path)) << path;
}

TEST_F(SessionTest, AJobGoesOnFromTheDirectoryThatSomebodyNamed) {
  Job job = SmallJob();
  const auto undisturbed = RunSessions(job, 1);
  job.checkpoint = Every(4);
  const auto first = RunSessions(job, 1, 1, {}, /*stop_after=*/9);
  const std::string copy = folder_ / "copy";
  fs::copy(first->outside.checkpoints()[1], copy, fs::copy_options::recursive);
  start_.start_from = copy;
  const auto second = RunSessions(job, 1, 2, first->outside.checkpoints());
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  EXPECT_EQ(second->outside.started().checkpoint_path, copy);
  EXPECT_EQ(second->outside.losses().begin()->first, 9);
  EXPECT_EQ(second->outside.losses().at(12), undisturbed->outside.losses().at(12));
}

// A mount that is gone at a restart.
TEST_F(SessionTest, WithoutAnyReadableCheckpointTheJobDoesNotBeginAnewAndNothingIsChanged) {
  Job job = SmallJob();
  job.checkpoint = Every(4);
  const auto first = RunSessions(job, 2, 1, {}, /*stop_after=*/9);
  const auto written = first->outside.checkpoints();
  const fs::path folder = fs::path(written[0]).parent_path();
  fs::rename(folder, folder_ / "away");
  const auto second = RunSessions(job, 2, 2, written);
  const absl::Status status = second->ends[0].status();
  EXPECT_EQ(CauseOf(status), Cause::kCheckpointsUnreadable) << status;
  EXPECT_NE(std::string(status.message()).find(folder.string()), std::string::npos) << status;
  EXPECT_EQ(CauseOf(second->ends[1].status()), Cause::kNone);
  EXPECT_EQ(Classify(second->ends[1].status(), Phase::kCreate), FailureKind::kConsequence);
  EXPECT_TRUE(second->outside.bad().empty());
  EXPECT_FALSE(fs::exists(folder)) << "in its place a mount would hide the rest";

  fs::rename(folder_ / "away", folder);
  const auto third = RunSessions(job, 2, 3, written);
  ASSERT_TRUE(third->ends[0].ok()) << third->ends[0].status();
  EXPECT_EQ(third->outside.started().checkpoint_path, written[0]);
  for (const std::string& path : written) EXPECT_TRUE(fs::exists(path)) << path;
}

TEST_F(SessionTest, WhereAllAreDamagedTheJobDoesNotBeginAnewEither) {
  Job job = SmallJob();
  job.checkpoint = Every(4);
  const auto first = RunSessions(job, 2, 1, {}, /*stop_after=*/5);
  const auto written = first->outside.checkpoints();
  for (const std::string& path : written) fs::resize_file(fs::path(path) / "rank-1.safetensors", 100);
  const auto second = RunSessions(job, 2, 2, written);
  EXPECT_EQ(CauseOf(second->ends[0].status()), Cause::kCheckpointsUnreadable) << second->ends[0].status();
  EXPECT_EQ(second->outside.bad(), written);
  // Now none is left that could be named.
  start_.had_checkpoints = true;
  const auto third = RunSessions(job, 2, 3);
  EXPECT_EQ(CauseOf(third->ends[0].status()), Cause::kCheckpointsUnreadable) << third->ends[0].status();
  EXPECT_TRUE(third->outside.losses().empty());
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

TEST_F(SessionTest, AStopTakesEffectAtOneStepOnAllRanks) {
  const auto run = RunSessions(SmallJob(), 3, 1, {}, /*stop_after=*/5);
  for (const auto& end : run->ends) {
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_TRUE(end->stopped);
    EXPECT_EQ(end->step, run->ends[0]->step);
    EXPECT_LT(end->step, 12);
  }
}

// Of the rank that alone hears of it, once so many steps are known.
class Preempting : public CommandSource {
 public:
  Preempting(const Outside* outside, int64_t after_step)
      : outside_(outside), after_step_(after_step) {}
  int64_t Newest() const override { return outside_->Newest(); }
  Command Get(int64_t number) const override { return outside_->Get(number); }
  bool Preempted() const override { return outside_->newest_step() >= after_step_; }

 private:
  const Outside* const outside_;
  const int64_t after_step_;
};

TEST_F(SessionTest, WhereOneRankIsPreemptedAllSaveAtOneStepAndTheJobGoesOnBitwiseEqual) {
  Job job = SmallJob();
  const auto undisturbed = RunSessions(job, 2);
  job.checkpoint = Every(100);  // none is due
  Result first;
  first.ends.assign(2, absl::UnknownError("did not run"));
  const Preempting preempting(&first.outside, 5);
  RunRanks(2, [&](int rank, comm::Communicator& control, comm::Communicator& data) {
    const CommandSource* commands = &first.outside;
    if (rank == 1) commands = &preempting;
    const SessionParts parts{&control, &data, commands, &first.outside, {}};
    auto session = Session::Create({"job", job_instance_, 1, rank, "incarnation"}, job, parts);
    first.ends[rank] = session.ok() ? (*session)->Run() : session.status();
  });
  for (const auto& end : first.ends) {
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_TRUE(end->preempted);
    EXPECT_FALSE(end->stopped);
    EXPECT_EQ(end->step, first.ends[0]->step);
    EXPECT_LT(end->step, 12);
  }
  ASSERT_EQ(first.outside.checkpoints().size(), 1u);
  const auto next = RunSessions(job, 2, 2, first.outside.checkpoints());
  ASSERT_TRUE(next->ends[0].ok()) << next->ends[0].status();
  EXPECT_FALSE(next->ends[0]->preempted);
  EXPECT_EQ(next->outside.losses().begin()->first, first.ends[0]->step + 1) << "no step is done twice";
  auto losses = first.outside.losses();
  losses.merge(next->outside.losses());
  EXPECT_EQ(losses, undisturbed->outside.losses());
}

TEST_F(SessionTest, AMissingRankIsAConsequenceForTheOthers) {
  const auto run = RunSessions(SmallJob(), 3, 1, {}, 0, /*kill_rank=*/1);
  for (int rank : {0, 2}) {
    EXPECT_EQ(Classify(run->ends[rank].status(), Phase::kCreate), FailureKind::kConsequence)
        << run->ends[rank].status();
  }
}

TEST_F(SessionTest, ALossThatIsNotFiniteEndsTheJobForGood) {
  Job job = SmallJob();
  job.optimizer->lr = 1e30;
  job.clip_grad_norm.reset();
  const auto run = RunSessions(job, 2);
  for (const auto& end : run->ends) {
    EXPECT_EQ(end.status().code(), absl::StatusCode::kOutOfRange) << end.status();
    EXPECT_EQ(Classify(end.status(), Phase::kRun), FailureKind::kPermanent);
  }
}

TEST_F(SessionTest, ParametersThatAreNotFiniteAreNotKept) {
  Job job = SmallJob();
  job.optimizer = OptimizerConfig{INFINITY, optim::SgdOptions{}};  // spoils them behind a finite loss
  job.stages = {FitStage{1, 0}};
  job.weights_export = {.path = folder_ / "model.safetensors"};
  job.checkpoint = Every(1);
  const auto run = RunSessions(job, 2);
  EXPECT_EQ(run->ends[0].status().code(), absl::StatusCode::kOutOfRange) << run->ends[0].status();
  EXPECT_TRUE(run->outside.checkpoints().empty());
  EXPECT_FALSE(fs::exists(job.weights_export->path));
}

TEST_F(SessionTest, BadFilesAreNamed) {
  Job job = SmallJob();
  job.train = TokenFiles{{folder_ / "nowhere.bin"}};
  const auto missing = RunSessions(job, 1)->ends[0].status();
  EXPECT_EQ(Classify(missing, Phase::kCreate), FailureKind::kPermanent);
  EXPECT_NE(std::string(missing.message()).find("data.train"), std::string::npos) << missing;
  EXPECT_NE(std::string(missing.message()).find("nowhere.bin"), std::string::npos) << missing;
}

TEST_F(SessionTest, ExportsTheWeights) {
  Job job = SmallJob();
  job.weights_export = {.path = folder_ / "out" / "model.safetensors"};
  const auto run = RunSessions(job, 2);
  ASSERT_TRUE(run->ends[0].ok()) << run->ends[0].status();
  EXPECT_TRUE(fs::exists(job.weights_export->path));
  // They are the trained weights: a job that starts from them validates as the trained model does.
  Job validate = SmallJob();
  validate.stages = {ValidateStage{}};
  validate.model.weights = job.weights_export->path;
  job.stages.push_back(ValidateStage{});
  const double expected = RunSessions(job, 2)->outside.validations().at(12);
  EXPECT_EQ(RunSessions(validate, 2)->outside.validations().at(0), expected);
}

TEST_F(SessionTest, AFileForEachRankResumesBitwiseInAnyEpoch) {
  WriteTokens("short.bin", 450);
  Job job = SmallJob();
  job.train = TokenFiles{.paths = {folder_ / "train.bin", folder_ / "short.bin"}, .per_rank = true};
  job.batch = {.per_rank = 3, .accumulate = 2, .last = data::Last::kPad};
  job.stages = {FitStage{25, 0}};  // 56 samples of the short one: 10 steps an epoch
  const auto undisturbed = RunSessions(job, 2);
  ASSERT_TRUE(undisturbed->ends[0].ok()) << undisturbed->ends[0].status();
  ASSERT_TRUE(undisturbed->ends[1].ok()) << undisturbed->ends[1].status();
  job.checkpoint = Every(7);
  auto first = RunSessions(job, 2, 1, {}, /*stop_after=*/13);
  ASSERT_TRUE(first->ends[0].ok()) << first->ends[0].status();
  auto losses = first->outside.losses();
  EXPECT_LT(losses.size(), 25u);
  const auto second = RunSessions(job, 2, 2, first->outside.checkpoints());
  ASSERT_TRUE(second->ends[1].ok()) << second->ends[1].status();
  for (const auto& [step, loss] : second->outside.losses()) losses[step] = loss;
  EXPECT_EQ(losses, undisturbed->outside.losses());
  // Another order of the files is another run: it matters which rank reads what.
  job.train = TokenFiles{.paths = {folder_ / "short.bin", folder_ / "train.bin"}, .per_rank = true};
  job.checkpoint.reset();
  EXPECT_NE(RunSessions(job, 2)->outside.losses(), undisturbed->outside.losses());
}

TEST_F(SessionTest, ValidationOverFilesOfTheRanksCountsEverySampleOnce) {
  WriteTokens("a.bin", 90);
  WriteTokens("b.bin", 500);
  WriteTokens("c.bin", 9);
  const std::vector<std::string> paths = {folder_ / "a.bin", folder_ / "b.bin", folder_ / "c.bin"};
  Job job = SmallJob();
  job.stages = {ValidateStage{}};
  job.optimizer.reset();
  job.train.reset();
  job.validate = TokenFiles{.paths = paths};
  const double expected = RunSessions(job, 1)->outside.validations().at(0);
  job.validate = TokenFiles{.paths = paths, .per_rank = true};
  const auto own = RunSessions(job, 3);
  ASSERT_TRUE(own->ends[2].ok()) << own->ends[2].status();
  EXPECT_NEAR(own->outside.validations().at(0), expected, 1e-6);  // the sums differ in their order only
}

TEST_F(SessionTest, ARankOpensNoFileButItsOwn) {
  Job job = SmallJob();
  job.train =
      TokenFiles{.paths = {folder_ / "train.bin", folder_ / "nowhere.bin"}, .per_rank = true};
  const auto run = RunSessions(job, 2);
  EXPECT_EQ(run->ends[1].status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Classify(run->ends[0].status(), Phase::kCreate), FailureKind::kConsequence)
      << run->ends[0].status();
  const auto one = RunSessions(job, 1)->ends[0].status();
  EXPECT_EQ(one.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(one.message()).find("data.train: per_rank: expected a file for each of 1 ranks, found 2"),
            std::string::npos) << one;
}

TEST_F(SessionTest, ASampleThatIsNotFiniteEndsTheJobForGoodAndIsNamed) {
  Job job = SmallJob();
  job.model = {.kind = "mlp", .options_json = R"({"inputs": 2, "hidden": [], "classes": 2})"};
  std::ofstream inputs(folder_ / "inputs.npy", std::ios::binary);
  std::ofstream labels(folder_ / "labels.npy", std::ios::binary);
  const auto header = [](const std::string& descr, const std::string& shape) {
    std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + "}";
    text.resize(117, ' ');
    return std::string("\x93NUMPY\x01\0\x76\0", 10) + text + "\n";
  };
  inputs << header("<f4", "(60, 2)");
  labels << header("<i8", "(60,)");
  for (int64_t i = 0; i < 60; ++i) {
    const float row[] = {0.5f, i == 47 ? NAN : 1.0f};
    inputs.write(reinterpret_cast<const char*>(row), sizeof(row));
    const int64_t label = i % 2;
    labels.write(reinterpret_cast<const char*>(&label), sizeof(label));
  }
  inputs.close();
  labels.close();
  job.train = NpyFiles{{folder_ / "inputs.npy"}, {folder_ / "labels.npy"}};
  job.validate.reset();
  const auto run = RunSessions(job, 2);
  int named = 0;
  for (const auto& end : run->ends) {
    if (end.status().code() != absl::StatusCode::kInvalidArgument) continue;
    ++named;
    EXPECT_EQ(Classify(end.status(), Phase::kRun), FailureKind::kPermanent);
    EXPECT_NE(std::string(end.status().message()).find("inputs.npy: inputs: row 47, byte offset 508"),
              std::string::npos) << end.status();
  }
  EXPECT_EQ(named, 1);
}

}  // namespace
}  // namespace muster::train
