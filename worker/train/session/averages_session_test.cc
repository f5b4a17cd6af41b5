// Sessions with averages of the parameters (`ema`): the unchanged training, evaluation and export
// with the averages, and resuming. tests/parity/ema_test.py compares the averages with PyTorch's
// AveragedModel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/safetensors/safetensors.h"
#include "worker/train/reports/test_commands.h"
#include "worker/train/session/session_fixture.h"
#include "worker/train/training/setup.h"

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Returns a hash of each tensor in a file of weights, so that a difference gives a short message.
std::map<std::string, size_t> WeightsIn(const std::string& path) {
  std::map<std::string, size_t> weights;
  const auto file = safetensors::File::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return weights;
  for (const auto& entry : file->header().entries) {
    weights[entry.name] = std::hash<std::string_view>()(
        {reinterpret_cast<const char*>(file->data(entry)), entry.bytes()});
  }
  return weights;
}

class AveragesSessionTest : public SessionTest {
 protected:
  Job JobOf(const StrategyConfig& strategy, int64_t every = 1) const {
    Job job = SmallJob();
    job.strategy = strategy;
    job.evaluation.averages = AverageConfig{.decay = 0.9, .every = every};
    job.weights_export = ExportConfig{.path = Out(),
                                      .overwrite = true,
                                      .job_name = "averages",
                                      .from = ExportConfig::From::kAverages};
    return job;
  }
  std::string Out() const { return folder_ / "out.safetensors"; }

  std::unique_ptr<Result> Good(const Job& job, int world_size = 2, int64_t generation = 1,
                               std::vector<std::string> checkpoints = {}, int64_t stop_after = 0) {
    auto run = RunSessions(job, world_size, generation, std::move(checkpoints), stop_after);
    for (const auto& end : run->ends) EXPECT_TRUE(end.ok()) << end.status();
    return run;
  }
  std::map<std::string, size_t> Exported(const Job& job, int world_size = 2) {
    Good(job, world_size);
    return WeightsIn(Out());
  }

  static Command SetRules(std::vector<TrainableRule> rules, int64_t at_step, int64_t number) {
    return Numbered(number, RulesOf(std::move(rules)), at_step);
  }
  // Freezes the first block after 3 steps. Unfreezes it and freezes the second block after 7 steps.
  void FreezeInBetween() {
    commands_ = {SetRules({{true, "transformer.h.0.*"}}, 3, 1),
                 SetRules({{false, "transformer.h.0.*"}, {true, "transformer.h.1.*"}}, 7, 2)};
  }
};

TEST_F(AveragesSessionTest, TrainingIsBitwiseTheSameWithAndWithoutThem) {
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    Job job = JobOf(strategy);
    job.numerics.precision = Precision::kFloat16;
    job.numerics.loss_scale.growth_interval = 3;
    job.weights_export->from = ExportConfig::From::kLast;
    Job plain = job;
    plain.evaluation.averages.reset();
    const auto without = Good(plain);
    const auto weights = WeightsIn(Out());
    for (const bool evaluate : {false, true}) {
      job.evaluation.averages->evaluate = evaluate;
      job.stages = {FitStage{4, 2}, ValidateStage{}, FitStage{8, 3}};
      EXPECT_EQ(Good(job)->coordinator.losses(), without->coordinator.losses());
      EXPECT_EQ(WeightsIn(Out()), weights);
    }
  }
}

TEST_F(AveragesSessionTest, AllStrategiesHaveTheSameAverages) {
  for (const bool freezes : {false, true}) {
    if (freezes) FreezeInBetween();
    for (const int64_t every : {1, 3}) {
      const auto expected = Exported(JobOf(Strategies()[0], every));
      Job last = JobOf(Strategies()[0], every);
      last.weights_export->from = ExportConfig::From::kLast;
      EXPECT_NE(Exported(last), expected) << "the averages are not the weights";
      for (const StrategyConfig& strategy : Strategies()) {
        SCOPED_TRACE(StrategyName(strategy));
        EXPECT_EQ(Exported(JobOf(strategy, every)), expected);
        parallel::FsdpOptions resident{.frozen_resident = true};
        EXPECT_EQ(Exported(JobOf(resident, every)), expected);
      }
    }
  }
}

TEST_F(AveragesSessionTest, BeforeTheFirstUpdateTheyAreTheParameters) {
  for (const StrategyConfig& strategy : Strategies()) {
    Job job = JobOf(strategy, /*every=*/13);  // of 12 steps
    job.evaluation.averages->evaluate = true;
    job.stages = {FitStage{12, 6}, ValidateStage{}};
    const auto averages = Good(job);
    const auto exported = WeightsIn(Out());
    job.evaluation.averages.reset();
    job.weights_export->from = ExportConfig::From::kLast;
    EXPECT_EQ(Good(job)->coordinator.validations(), averages->coordinator.validations());
    EXPECT_EQ(WeightsIn(Out()), exported);
  }
}

// A job that has the exported averages as its weights evaluates to the same loss.
TEST_F(AveragesSessionTest, EvaluationUsesThem) {
  FreezeInBetween();
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    for (const int world_size : {1, 2, 3}) {
      Job job = JobOf(strategy);
      job.evaluation.averages->evaluate = true;
      job.stages = {FitStage{12, 12}, ValidateStage{}};  // with the plan of training, and after it
      const double in_fit = Good(job, world_size)->coordinator.validations().at(12);
      job.stages = {FitStage{12, 0}, ValidateStage{}};
      const double after = Good(job, world_size)->coordinator.validations().at(12);
      Job evaluated = SmallJob();
      evaluated.strategy = strategy;
      evaluated.stages = {ValidateStage{}};
      evaluated.data.train.reset();
      evaluated.optimizer.reset();
      evaluated.spec.mutable_model()->set_weights(Out());
      const auto commands = std::exchange(commands_, {});
      const double expected = Good(evaluated, world_size)->coordinator.validations().at(0);
      commands_ = commands;
      EXPECT_EQ(in_fit, expected);
      EXPECT_EQ(after, expected);
      job.evaluation.averages->evaluate = false;
      EXPECT_NE(Good(job, world_size)->coordinator.validations().at(12), expected);
    }
  }
}

TEST_F(AveragesSessionTest, ASessionGoesOnWithThemWhateverItsStrategy) {
  FreezeInBetween();
  for (size_t first = 0; first < Strategies().size(); ++first) {
    const auto expected = Exported(JobOf(Strategies()[first], /*every=*/3));
    for (const int64_t stop_after : {2, 5, 8}) {  // before the first update; between changes
      SCOPED_TRACE(stop_after);
      std::filesystem::remove_all(folder_ / "ckpt");
      Job job = JobOf(Strategies()[first], 3);
      job.checkpoint = Every(1);
      job.checkpoint->background = false;
      const auto commands = commands_;
      commands_.push_back(Numbered(3, A(v1::StopCommand()), stop_after));
      const auto begun = Good(job, 2);
      commands_ = commands;
      ASSERT_EQ(begun->ends[0]->step, stop_after);
      job.strategy = Strategies()[(first + 1) % Strategies().size()];
      Good(job, 2, 2, begun->coordinator.checkpoints());
      EXPECT_EQ(WeightsIn(Out()), expected);
    }
  }
}

// Other numbers of ranks load the checkpoint of the last step.
TEST_F(AveragesSessionTest, ACheckpointGivesThemToAnyWorldSize) {
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    std::filesystem::remove_all(folder_ / "ckpt");
    Job job = JobOf(strategy);
    job.checkpoint = Every(0);
    const auto first = Good(job, 2);
    const auto expected = WeightsIn(Out());
    int64_t generation = 2;
    for (const StrategyConfig& other : Strategies()) {
      for (const int world_size : {1, 3}) {
        std::filesystem::remove(Out());
        job.strategy = other;
        Good(job, world_size, generation++, first->coordinator.checkpoints());
        EXPECT_EQ(WeightsIn(Out()), expected);
      }
    }
  }
}

TEST_F(AveragesSessionTest, AnExportDuringTrainingHasThem) {
  for (const StrategyConfig& strategy : Strategies()) {
    Job job = JobOf(strategy);
    job.stages = {FitStage{5, 0}};
    const auto expected = Exported(job);
    // A session that stops at step 6 exports no weights at its end.
    job.stages = {FitStage{12, 0}};
    job.weights_export->every_steps = 5;
    commands_ = {Numbered(1, A(v1::StopCommand()), 6)};
    std::filesystem::remove(Out());
    EXPECT_EQ(Exported(job), expected) << StrategyName(strategy);
    commands_.clear();
  }
}

TEST_F(AveragesSessionTest, AnotherJobsCheckpointGivesThemWithTheOptimizersState) {
  using What = StartConfig::What;
  Job job = JobOf(Strategies()[1]);
  job.stages = {FitStage{6, 0}};
  job.checkpoint = Every(0);
  const auto with = Good(job);
  const auto averages = WeightsIn(Out());
  Job plain = job;
  plain.evaluation.averages.reset();
  plain.weights_export->from = ExportConfig::From::kLast;
  plain.checkpoint->directory = folder_ / "plain";
  const auto without = Good(plain);
  const auto parameters = WeightsIn(Out());
  ASSERT_NE(averages, parameters);

  // The other job makes no update, so its averages are those of the start.
  job_instance_ = "another";
  Job other = JobOf(Strategies()[2], /*every=*/100);
  other.evaluation.averages->evaluate = true;
  const auto started = [&](const Result& from, What what) {
    other.start = StartConfig{from.coordinator.checkpoints().at(0), what};
    // The other job makes one more step.
    other.stages = {FitStage{7, 0}};
    commands_ = {};
    return Good(other);
  };
  const auto everything = started(*with, What::kEverything);
  EXPECT_EQ(WeightsIn(Out()), averages);
  EXPECT_THAT(everything->coordinator.notice_reasons(), IsEmpty());
  const auto neither = started(*without, What::kEverything);
  const auto next_step = WeightsIn(Out());
  EXPECT_NE(next_step, averages);
  EXPECT_THAT(neither->coordinator.notice_reasons(), ElementsAre("AVERAGES_BEGIN_ANEW"));
  EXPECT_THAT(started(*with, What::kWeightsAndOptimizer)->coordinator.notice_reasons(), IsEmpty());
  EXPECT_EQ(WeightsIn(Out()), averages);
  EXPECT_THAT(started(*with, What::kWeights)->coordinator.notice_reasons(),
              ElementsAre("AVERAGES_BEGIN_ANEW"));
  // A job without averages ignores them.
  other.evaluation.averages.reset();
  other.weights_export->from = ExportConfig::From::kLast;
  EXPECT_THAT(started(*with, What::kEverything)->coordinator.notice_reasons(), IsEmpty());
  EXPECT_EQ(WeightsIn(Out()), next_step);
}

}  // namespace
}  // namespace muster::train
