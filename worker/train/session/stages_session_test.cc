// The stages of a session, and their effects on later stages and later sessions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/safetensors/safetensors.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/reports/test_commands.h"
#include "worker/train/session/session_fixture.h"
#include "worker/train/training/setup.h"

namespace muster::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class StagesTest : public SessionTest {
 protected:
  void SetUp() override {
    SessionTest::SetUp();
    WriteTokens("test.bin", 75);
  }
  Job SmallJob() const {
    Job job = SessionTest::SmallJob();
    job.data.test = TokenFiles{{folder_ / "test.bin"}};
    return job;
  }
  std::unique_ptr<Result> Good(const Job& job, int world_size = 2) {
    auto run = RunSessions(job, world_size);
    for (const auto& end : run->ends) EXPECT_TRUE(end.ok()) << end.status();
    return run;
  }
};

// The model of SmallJob draws random numbers in training.
TEST_F(StagesTest, TrainingIsBitwiseTheSameWithEvaluationInBetween) {
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    Job job = SmallJob();
    job.strategy = strategy;
    job.numerics.precision = Precision::kFloat16;
    job.numerics.loss_scale.growth_interval = 3;
    const auto plain = Good(job);
    job.stages = {TestStage{},     FitStage{4, 2}, TestStage{},   FitStage{5, 0},
                  ValidateStage{}, TestStage{},    FitStage{3, 0}};
    const auto staged = Good(job);
    EXPECT_EQ(staged->coordinator.losses(), plain->coordinator.losses());
    EXPECT_EQ(staged->ends[0]->step, 12);
    EXPECT_EQ(staged->coordinator.tests().size(), 3u) << "after steps 0, 4 and 9";
    EXPECT_EQ(staged->coordinator.validations().size(), 3u) << "after steps 2, 4 and 9";
    EXPECT_THAT(staged->coordinator.stages(),
                ElementsAre("test", "fit", "test", "fit", "validate", "test", "fit"));
  }
}

TEST_F(StagesTest, ATestReadsItsOwnData) {
  Job job = SmallJob();
  job.stages = {FitStage{2, 0}, ValidateStage{}, TestStage{}};
  const auto run = Good(job);
  const v1::Evaluation test = run->coordinator.tests().at(2);
  EXPECT_EQ(test.samples(), 9u) << "(75 - 1) / 8";
  EXPECT_EQ(test.terms(), 72u);
  EXPECT_TRUE(test.has_perplexity());
  EXPECT_TRUE(test.has_accuracy());
  EXPECT_FALSE(test.has_classes()) << "tokens are no classes";
  EXPECT_NE(test.loss(), run->coordinator.validations().at(2));
  std::filesystem::remove(folder_ / "test.bin");
  EXPECT_THAT(std::string(RunSessions(job, 2)->ends[1].status().message()), HasSubstr("data.test"));
}

TEST_F(StagesTest, AnEpochIsOnePassOverTheData) {
  // 149 samples, 12 per step: 12 steps, and 5 samples are dropped.
  Job job = SmallJob();
  job.schedule = optim::WarmupCosine{.warmup_steps = 3, .total_steps = 0};
  job.stages = {FitStage{.steps = 0, .validate_every = 1, .epochs = 1}, TestStage{},
                FitStage{.steps = 0, .epochs = 1}};
  const auto epochs = Good(job);
  EXPECT_EQ(epochs->ends[0]->step, 24);
  EXPECT_EQ(epochs->coordinator.started().total_steps, 24);
  EXPECT_EQ(epochs->coordinator.tests().count(12), 1u);
  EXPECT_EQ(epochs->coordinator.validations().count(12), 1u) << "after one epoch";
  // The schedule ends with the last step.
  job.schedule = optim::WarmupCosine{.warmup_steps = 3, .total_steps = 24};
  job.stages = {FitStage{24, 0}};
  EXPECT_EQ(epochs->coordinator.losses(), Good(job)->coordinator.losses());
}

TEST_F(StagesTest, AnUnevenEpochIsItsStepsToTheLastSample) {
  Job job = SmallJob();
  job.batch.last = data::Last::kUneven;
  job.stages = {FitStage{.steps = 0, .epochs = 2}};
  EXPECT_EQ(Good(job)->ends[0]->step, 26) << "13 steps for 149 samples";
}

TEST_F(StagesTest, AJobThatCountsInEpochsIsCheckedOnceItsStepsAreKnown) {
  Job job = SmallJob();
  job.stages = {FitStage{.steps = 0, .epochs = 2}};
  job.spec.add_stages()->mutable_fit()->set_epochs(2);
  job.spec.mutable_schedule()->mutable_warmup_cosine()->set_warmup_steps(25);
  job.spec.mutable_profile()->add_steps(30);
  const auto run = RunSessions(job, 2);
  EXPECT_EQ(run->ends[0].status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(run->ends[0].status().message());
  EXPECT_THAT(message, HasSubstr("the stages have 24 steps, 12 in each epoch"));
  EXPECT_THAT(message, HasSubstr("schedule.warmup_cosine.warmup_steps: found 25"));
  EXPECT_THAT(message, HasSubstr("profile.steps[0]: found 30; allowed: 1 to 24"));
}

TEST_F(StagesTest, AJobByEpochsGoesOnInTheMiddleOfOneBitwise) {
  Job job = SmallJob();
  job.schedule = optim::Linear{.total_steps = 0};
  job.stages = {FitStage{.steps = 0, .epochs = 2}, TestStage{}};
  const auto undisturbed = Good(job);
  job.checkpoint = Every(5);
  const auto first = RunSessions(job, 2, 1, {}, /*stop_after=*/14);
  ASSERT_TRUE(first->ends[0].ok()) << first->ends[0].status();
  const auto second = RunSessions(job, 2, 2, first->coordinator.checkpoints());
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  auto losses = first->coordinator.losses();
  for (const auto& [step, loss] : second->coordinator.losses()) losses[step] = loss;
  EXPECT_EQ(losses, undisturbed->coordinator.losses());
  EXPECT_EQ(second->coordinator.tests().at(24).SerializeAsString(),
            undisturbed->coordinator.tests().at(24).SerializeAsString());
}

TEST_F(StagesTest, AnEpochIsOnePassWithAnyNumberOfRanks) {
  Job job = SmallJob();
  job.schedule = optim::Linear{.total_steps = 0};
  job.checkpoint = Every(0);
  job.stages = {FitStage{14, 0}};
  const auto first = Good(job);
  job.stages = {FitStage{.steps = 0, .validate_every = 1, .epochs = 2}};
  // 24 samples of the second epoch are done. A step takes 6 of 149 samples per rank.
  int64_t generation = 2;
  for (const auto& [ranks, steps] : std::map<int, int64_t>{{1, 20}, {2, 10}, {3, 6}}) {
    const auto second = RunSessions(job, ranks, generation++, first->coordinator.checkpoints());
    ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
    EXPECT_EQ(second->ends[0]->step, 14 + steps);
    EXPECT_EQ(second->coordinator.started().total_steps, 14 + steps);
    EXPECT_EQ(second->coordinator.validations().size(), 1u);
    EXPECT_EQ(second->coordinator.validations().begin()->first, 14 + steps);
    // Later generations would continue from this checkpoint.
    std::filesystem::remove_all(second->coordinator.checkpoints().front());
    const auto told = second->coordinator.notice_messages();
    EXPECT_EQ(told.contains("STEPS_PER_EPOCH_CHANGED"), ranks != 2);
    if (ranks == 2) continue;
    EXPECT_THAT(told.at("STEPS_PER_EPOCH_CHANGED"),
                HasSubstr(absl::StrCat(14 + steps, " in all instead of 24")));
  }
}

TEST_F(StagesTest, AnEpochWhoseRestIsDroppedByALargerBatchHasItsPass) {
  Job job = SmallJob();
  job.checkpoint = Every(0);
  job.stages = {FitStage{11, 0}};
  const auto first = Good(job);
  job.stages = {FitStage{.steps = 0, .validate_every = 1, .epochs = 1}, TestStage{}};
  job.batch.accumulate = 4;  // 24 samples per step, of which 17 are left
  const auto second = RunSessions(job, 2, 2, first->coordinator.checkpoints());
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  EXPECT_EQ(second->ends[0]->step, 11);
  EXPECT_EQ(second->coordinator.validations().count(11), 1u);
  EXPECT_EQ(second->coordinator.tests().count(11), 1u);
  EXPECT_THAT(second->coordinator.losses(), IsEmpty());
}

TEST_F(StagesTest, AnotherJobsCheckpointMustLeaveAStep) {
  Job job = SmallJob();
  job.stages = {FitStage{.steps = 0, .epochs = 1}};
  job.checkpoint = Every(0);
  const auto other = Good(job);
  job.checkpoint.reset();
  job.start = StartConfig{other->coordinator.checkpoints().front(), StartConfig::What::kEverything};
  job_instance_ = "another";
  const auto run = RunSessions(job, 2);
  EXPECT_EQ(CauseOf(run->ends[0].status()), Cause::kStartDoesNotFit);
  EXPECT_THAT(std::string(run->ends[0].status().message()),
              HasSubstr("is of step 12, and the fit stages have 12 steps"));
  job.stages = {FitStage{.steps = 0, .epochs = 2}};
  EXPECT_EQ(Good(job)->ends[0]->step, 24);
}

TEST_F(StagesTest, AStageThatIsOverIsNotRunAgain) {
  Job job = SmallJob();
  job.stages = {TestStage{}, FitStage{6, 0}, ValidateStage{}, TestStage{}, FitStage{6, 0}};
  const auto undisturbed = Good(job);
  job.checkpoint = Every(0);
  // A session that stops at the begin of the second fit stage has checkpoints from step 6 on.
  const auto first = RunSessions(job, 2, 1, {}, /*stop_after=*/6);
  ASSERT_TRUE(first->ends[0].ok()) << first->ends[0].status();
  std::vector<std::string> of_step_6;
  for (const std::string& path : first->coordinator.checkpoints()) {
    if (path.find("step-6-") != std::string::npos) of_step_6 = {path};
  }
  ASSERT_EQ(of_step_6.size(), 1u);
  std::filesystem::path others = folder_ / "ckpt/job";
  for (const auto& entry : std::filesystem::directory_iterator(others)) {
    const bool other = entry.is_directory() && entry.path() != of_step_6[0];
    if (other) std::filesystem::remove_all(entry.path());
  }
  const auto run_from = [&](const StagesDone& done, int64_t generation) {
    start_.stages_done = done;
    auto run = RunSessions(job, 2, generation, of_step_6);
    EXPECT_TRUE(run->ends[0].ok()) << run->ends[0].status();
    auto losses = run->coordinator.losses();
    EXPECT_EQ(losses.begin()->first, 7);
    for (const auto& [step, loss] : losses) {
      EXPECT_EQ(loss, undisturbed->coordinator.losses().at(step)) << step;
    }
    for (const auto& entry : std::filesystem::directory_iterator(others)) {
      const bool other = entry.is_directory() && entry.path() != of_step_6[0];
      if (other) std::filesystem::remove_all(entry.path());
    }
    return run;
  };
  // The validation was over. The test starts again, with the same result.
  const auto in_the_test = run_from({3, 6}, 2);
  EXPECT_THAT(in_the_test->coordinator.stages(), ElementsAre("test", "fit"));
  EXPECT_EQ(in_the_test->coordinator.tests().at(6).SerializeAsString(),
            undisturbed->coordinator.tests().at(6).SerializeAsString());
  EXPECT_EQ(in_the_test->coordinator.stages_done().stages, 4);
  EXPECT_EQ(in_the_test->coordinator.stages_done().step, 6);
  // Validation and test were over.
  EXPECT_THAT(run_from({4, 6}, 3)->coordinator.stages(), ElementsAre("fit"));
  // Nothing is known of step 6: the coordinator does not say, or says something of another step,
  // because a checkpoint was set aside.
  EXPECT_THAT(run_from({}, 4)->coordinator.stages(), ElementsAre("validate", "test", "fit"));
  EXPECT_THAT(run_from({1, 0}, 5)->coordinator.stages(), ElementsAre("validate", "test", "fit"));
}

TEST_F(StagesTest, CommandsThatAreDueAtTheLastStepComeBeforeAnythingIsFreed) {
  Job job = SmallJob();
  job.checkpoint = Every(0);
  job.stages = {FitStage{3, 0}, TestStage{}};
  const std::string path = folder_ / "state.pt";
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    std::filesystem::remove_all(folder_ / "ckpt");
    std::filesystem::remove(path);
    job.strategy = strategy;
    commands_ = {Numbered(1, GatherTo(path), 3)};
    const auto run = Good(job);
    const auto finished = run->coordinator.finished();
    EXPECT_TRUE(finished.at(1).ok()) << finished.at(1);
    EXPECT_TRUE(std::filesystem::exists(path));
    EXPECT_EQ(run->coordinator.tests().size(), 1u);
  }
}

TEST_F(StagesTest, CommandsAfterTheLastFitSayWhatIsFreed) {
  Job job = SmallJob();
  job.checkpoint = Every(0);
  // The ranks may hear of the commands only in the stage after the next.
  job.stages = {FitStage{3, 0}, TestStage{}, ValidateStage{}, ValidateStage{}};
  commands_after_a_test_ = true;
  const std::string folder = folder_ / "model";
  const TrainableRule freeze = {.freeze = true, .pattern = "transformer.h.0.*"};
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    std::filesystem::remove_all(folder_ / "ckpt");
    std::filesystem::remove_all(folder);
    job.strategy = strategy;
    commands_ = {Numbered(1, A(v1::SaveCheckpointCommand()), 3),
                 Numbered(2, GatherTo(folder + ".pt"), 3), Numbered(3, RulesOf({freeze}), 3),
                 Numbered(4, ConsolidateTo(folder), 3)};
    const auto run = Good(job);
    const auto finished = run->coordinator.finished();
    EXPECT_TRUE(finished.at(1).ok()) << "there is one of this step: " << finished.at(1);
    EXPECT_EQ(run->coordinator.checkpoints().size(), 1u);
    for (const int64_t number : {2, 3}) {
      EXPECT_EQ(finished.at(number).code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(std::string(finished.at(number).message()),
                  HasSubstr("training ended with step 3, and the optimizer's state was freed"));
    }
    EXPECT_TRUE(finished.at(4).ok()) << finished.at(4);
    EXPECT_TRUE(std::filesystem::exists(folder + "/model.safetensors"));
    EXPECT_EQ(run->coordinator.tests().size(), 1u);
  }
}

// The freed memory does not change the weights of the last step.
TEST_F(StagesTest, ATestAfterTheLastFitSeesWhatTheOneBeforeAnotherFitSees) {
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    Job job = SmallJob();
    job.strategy = strategy;
    job.stages = {FitStage{5, 0}, TestStage{}, FitStage{5, 0}};
    const auto before_more = Good(job);
    job.stages = {FitStage{5, 0}, TestStage{}};
    EXPECT_EQ(Good(job)->coordinator.tests().at(5).SerializeAsString(),
              before_more->coordinator.tests().at(5).SerializeAsString());
  }
}

TEST_F(StagesTest, WithoutFitAJobEvaluatesTheWeightsOfAnyCheckpoint) {
  Job job = SmallJob();
  job.stages = {FitStage{4, 0}, TestStage{}};
  job.checkpoint = Every(0);
  for (const StrategyConfig& strategy : Strategies()) {
    std::filesystem::remove_all(folder_ / "ckpt");
    job.strategy = strategy;
    const auto trained = Good(job);
    const v1::Evaluation expected = trained->coordinator.tests().at(4);
    Job test = SmallJob();
    test.data.train.reset();
    test.optimizer.reset();
    test.stages = {TestStage{}, ValidateStage{}};
    test.start = StartConfig{trained->coordinator.checkpoints().at(0), StartConfig::What::kWeights};
    for (const StrategyConfig& other : Strategies()) {
      for (const int world_size : {1, 3}) {
        SCOPED_TRACE(StrategyName(strategy) + " to " + StrategyName(other));
        test.strategy = other;
        const auto run = Good(test, world_size);
        const v1::Evaluation found = run->coordinator.tests().at(0);
        EXPECT_EQ(found.samples(), expected.samples());
        EXPECT_EQ(found.accuracy(), expected.accuracy()) << "counts are exact";
        EXPECT_NEAR(found.loss(), expected.loss(), 1e-6) << "sums have another order";
        EXPECT_EQ(run->coordinator.started().total_steps, 0);
      }
    }
  }
}

// Writes rows of 3 numbers with 2 classes.
std::string WriteRows(const std::string& path, int64_t count) {
  const auto plan = safetensors::Plan({{"inputs", safetensors::DType::kF32, {count, 3}},
                                       {"labels", safetensors::DType::kI64, {count}}},
                                      {});
  std::string file = plan->prefix;
  for (int64_t i = 0; i < 3 * count; ++i) {
    const float value = static_cast<float>(i % 7) - 3;
    file.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t label = i % 3 == 0;
    file.append(reinterpret_cast<const char*>(&label), sizeof(label));
  }
  EXPECT_TRUE(files::WriteAtomically(path, file).ok());
  return path;
}

TEST_F(StagesTest, APluginMakesItsModelOnceInASession) {
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    const std::string told = folder_ / "made";
    std::filesystem::remove(told);
    Job job;
    *job.spec.mutable_model() = models::SpecFromText(
        "plugin", R"({"path": "worker/models/plugin/plugin_faults.so", "name": "faulty", )"
                  R"("options": {"fault": "says-when-made", "path": ")" +
                      told + R"("}})");
    job.data.train = RowFiles{{WriteRows(folder_ / "train.safetensors", 20)}};
    job.data.validate = RowFiles{{WriteRows(folder_ / "validate.safetensors", 9)}};
    job.data.test = RowFiles{{WriteRows(folder_ / "test.safetensors", 13)}};
    job.strategy = strategy;
    job.optimizer = OptimizerConfig{0.01, optim::AdamWOptions{}};
    job.batch = {.per_rank = 2};
    job.stages = {ValidateStage{}, FitStage{2, 1}, TestStage{}, FitStage{2, 0}, TestStage{}};
    const auto run = Good(job);
    EXPECT_EQ(files::ReadFile(told).value_or(""), "made\nmade\n") << "each of the two ranks once";
    const v1::ClassCounts classes = run->coordinator.tests().at(4).classes();
    EXPECT_THAT(classes.targets(), ElementsAre(8, 5));
    EXPECT_EQ(classes.confusion_size(), 4);
  }
}

}  // namespace
}  // namespace muster::train
