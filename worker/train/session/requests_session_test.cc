// Evaluation passes and samples that commands ask for: their results, and the training, which must
// not change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "common/files/files.h"
#include "common/safetensors/safetensors.h"
#include "worker/models/spec_from_json.h"
#include "worker/train/reports/test_commands.h"
#include "worker/train/session/session_fixture.h"
#include "worker/train/training/setup.h"

namespace muster::train {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

const Command kGreedy = PromptOf({0, 1, 4}, 5);
const Command kDrawn = [] {
  Command command = PromptOf({9}, 7);
  command.mutable_sample()->set_temperature(1.5);
  command.mutable_sample()->set_top_k(10);
  command.mutable_sample()->set_seed(3);
  return command;
}();

class RequestsTest : public SessionTest {
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
  // Returns rows of images of 4 x 4 with 3 classes.
  DataConfig Images(const std::string& name, int64_t count, bool per_rank = false,
                    int64_t nan_at = -1) const {
    const auto plan = safetensors::Plan({{"inputs", safetensors::DType::kF32, {count, 1, 4, 4}},
                                         {"labels", safetensors::DType::kI64, {count}}},
                                        {});
    std::string file = plan->prefix;
    for (int64_t i = 0; i < 16 * count; ++i) {
      const float value = i == nan_at ? std::nanf("") : std::sin(static_cast<float>(i));
      file.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t label = i % 3;
      file.append(reinterpret_cast<const char*>(&label), sizeof(label));
    }
    EXPECT_TRUE(files::WriteAtomically(folder_ / name, file).ok());
    return RowFiles{{folder_ / name}, per_rank};
  }

  // Commands for these steps. Ask numbers them from 1.
  using Asked = std::vector<std::pair<int64_t, Command>>;
  void Ask(const Asked& asked) {
    commands_.clear();
    for (const auto& [step, command] : asked) {
      commands_.push_back(Numbered(static_cast<int64_t>(commands_.size()) + 1, command, step));
    }
  }
  // Runs the job and expects success. Its weights are in `weights_`.
  std::unique_ptr<Result> Good(Job job, int world_size = 2) {
    const std::string path = folder_ / "weights.safetensors";
    job.weights_export = ExportConfig{.path = path, .overwrite = true, .job_name = "job"};
    auto run = RunSessions(job, world_size);
    for (const auto& end : run->ends) EXPECT_TRUE(end.ok()) << end.status();
    weights_ = files::ReadFile(path).value_or("");
    EXPECT_FALSE(weights_.empty());
    return run;
  }
  static StageEvaluated Evaluated(const Result& run, int64_t number) {
    const CommandFinished ended = run.coordinator.ended().at(number);
    EXPECT_TRUE(ended.status.ok()) << ended.status;
    return std::get<StageEvaluated>(ended.result);
  }
  static Sampled SampleOf(const Result& run, int64_t number) {
    const CommandFinished ended = run.coordinator.ended().at(number);
    EXPECT_TRUE(ended.status.ok()) << ended.status;
    return std::get<Sampled>(ended.result);
  }

  std::string weights_;
};

// The job has dropout, a growing loss scale, accumulation, clipping and moments.
TEST_F(RequestsTest, TrainingIsBitwiseTheSameWithThemInEveryStrategy) {
  std::vector<std::vector<int64_t>> samples;
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    Job job = SmallJob();
    job.strategy = strategy;
    job.numerics.precision = Precision::kFloat16;
    job.numerics.loss_scale.growth_interval = 3;
    Ask({});
    const auto plain = Good(job);
    const std::string expected = weights_;
    Ask({{0, StageOf(kValidateStage)},
         {0, kGreedy},
         {3, kDrawn},
         {4, StageOf(kTestStage)},
         {4, StageOf(kValidateStage)},
         {8, A(v1::PauseCommand())},
         {8, kGreedy},
         {8, StageOf(kTestStage)},
         {8, A(v1::ResumeCommand())}});
    const auto asked = Good(job);
    EXPECT_EQ(asked->coordinator.losses(), plain->coordinator.losses());
    EXPECT_THAT(asked->coordinator.losses(), SizeIs(12));
    EXPECT_EQ(weights_, expected);
    EXPECT_THAT(asked->coordinator.tests(), SizeIs(2)) << "their rows are those of stages";
    EXPECT_THAT(asked->coordinator.validations(), SizeIs(2));
    std::vector<int64_t> all;
    for (const int64_t number : {2, 3, 7}) {
      const Sampled sampled = SampleOf(*asked, number);
      all.insert(all.end(), sampled.tokens.begin(), sampled.tokens.end());
      EXPECT_EQ(sampled.text, "") << "there is no tokenizer";
    }
    EXPECT_EQ(SampleOf(*asked, 3).step, 3);
    EXPECT_EQ(SampleOf(*asked, 3).prompt, (std::vector<int64_t>{9}));
    EXPECT_THAT(SampleOf(*asked, 3).tokens, SizeIs(7));
    samples.push_back(all);
  }
  EXPECT_THAT(samples, Each(samples[0])) << "the same bits in the parameters";
}

// A rank without input takes part in the pass, and BatchNorm's buffers stay as they are.
TEST_F(RequestsTest, TrainingIsBitwiseTheSameWithThemWhereRanksHaveJoined) {
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    Job job;
    job.seed = 5;
    *job.spec.mutable_model() = models::SpecFromText(
        "convnet", R"({"inputs": [1, 4, 4], "widths": [4], "blocks": [1], "classes": 3})");
    RowFiles train = std::get<RowFiles>(Images("long.safetensors", 40, /*per_rank=*/true));
    train.paths.push_back(std::get<RowFiles>(Images("short.safetensors", 8)).paths[0]);
    job.data.train = train;
    job.data.validate = Images("validate.safetensors", 1);
    job.data.test = Images("test.safetensors", 11);
    job.strategy = strategy;
    job.optimizer = OptimizerConfig{0.01, optim::AdamWOptions{}};
    job.batch = {.per_rank = 4, .accumulate = 2, .last = data::Last::kUneven};
    job.stages = {FitStage{5, 0}};
    Ask({});
    const auto plain = Good(job);
    const std::string expected = weights_;
    Ask({{1, StageOf(kValidateStage)}, {3, StageOf(kTestStage)}, {4, StageOf(kValidateStage)}});
    const auto asked = Good(job);
    EXPECT_EQ(asked->coordinator.losses(), plain->coordinator.losses());
    EXPECT_EQ(weights_, expected);
    EXPECT_EQ(Evaluated(*asked, 1).evaluation.samples(), 1u) << "one rank has none";
    EXPECT_EQ(Evaluated(*asked, 2).evaluation.samples(), 11u);
    EXPECT_EQ(Evaluated(*asked, 2).evaluation.classes().targets_size(), 3);
  }
}

TEST_F(RequestsTest, APassGivesWhatAStageGives) {
  Job job = SmallJob();
  job.stages = {FitStage{4, 2}, ValidateStage{}, TestStage{}, FitStage{8, 0}};
  Ask({});
  const auto staged = Good(job);
  job.stages = {FitStage{12, 0}};
  Ask({{4, StageOf(kTestStage)}, {4, StageOf(kValidateStage)}});
  const auto asked = Good(job);
  const StageEvaluated test = Evaluated(*asked, 1);
  EXPECT_EQ(test.step, 4);
  EXPECT_EQ(test.stage, "test");
  EXPECT_EQ(test.evaluation.SerializeAsString(),
            staged->coordinator.tests().at(4).SerializeAsString());
  EXPECT_EQ(Evaluated(*asked, 2).evaluation.loss(), staged->coordinator.validations().at(4));
  EXPECT_EQ(asked->coordinator.tests().at(4).SerializeAsString(),
            test.evaluation.SerializeAsString());
}

TEST_F(RequestsTest, TheyNeedNeitherTrainingNorItsEnd) {
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    Job trained = SmallJob();
    trained.strategy = strategy;
    trained.stages = {FitStage{3, 0}, TestStage{}};
    Ask({{3, StageOf(kTestStage)}, {3, kGreedy}});
    const auto over = Good(trained, 3);
    EXPECT_EQ(over->coordinator.applied().at(1), 3) << "after training";
    EXPECT_EQ(SampleOf(*over, 2).step, 3);
    Job evaluates = SmallJob();
    evaluates.strategy = strategy;
    evaluates.data.train.reset();
    evaluates.optimizer.reset();
    evaluates.stages = {ValidateStage{}};
    Ask({{0, StageOf(kTestStage)}, {0, kGreedy}});
    const auto alone = Good(evaluates, 3);
    EXPECT_EQ(Evaluated(*alone, 1).evaluation.samples(), 9u);
    EXPECT_THAT(SampleOf(*alone, 2).tokens, SizeIs(5));
  }
}

TEST_F(RequestsTest, ATextIsMadeOfBytes) {
  Job job = SmallJob();
  *job.spec.mutable_model() = models::SpecFromText(
      "gpt2", R"({"vocab_size": 300, "context": 8, "layers": 1, "heads": 2, "width": 16})");
  job.spec.mutable_model()->set_tokenizer(v1::ModelSpec::BYTES);
  job.stages = {FitStage{1, 0}};
  Ask({{0, kDrawn}});
  const Sampled sampled = SampleOf(*Good(job), 1);
  EXPECT_FALSE(sampled.text.empty());
}

// The coordinator leaves the number of new tokens to the worker where it does not know the context.
TEST_F(RequestsTest, TheUsualNumberOfTokensIsWhatTheContextHasRoomFor) {
  const auto usual = [](const std::vector<uint32_t>& prompt, uint32_t most) {
    Command command = PromptOf(prompt, 0);
    command.mutable_sample()->set_usual_tokens(most);
    return command;
  };
  Ask({{0, usual({0, 1, 4}, 64)},
       {0, usual({0, 1, 4}, 2)},
       {0, usual({0, 1, 2, 3, 4, 5, 6, 7}, 64)},
       {0, usual({0}, 0)}});
  Job job = SmallJob();
  job.stages = {FitStage{1, 0}};
  const auto run = Good(job);
  EXPECT_THAT(SampleOf(*run, 1).tokens, SizeIs(5)) << "the context is 8";
  EXPECT_THAT(SampleOf(*run, 2).tokens, SizeIs(2));
  const auto ended = run->coordinator.ended();
  EXPECT_THAT(std::string(ended.at(3).status.message()),
              HasSubstr("expected at most 8 tokens (the model's context), found 8 and 1 new ones"));
  EXPECT_THAT(std::string(ended.at(4).status.message()),
              HasSubstr("max_tokens: expected at least 1, found 0"));
}

TEST_F(RequestsTest, WhatCannotBeGivenEndsTheCommandAndTrainingGoesOn) {
  Job job = SmallJob();
  job.model.loss = models::LossOptions{.ignore_index = 0};
  job.data.test = TokenFiles{{folder_ / "zeros.bin"}};
  ASSERT_TRUE(files::WriteAtomically(folder_ / "zeros.bin", std::string(100, '\0')).ok());
  job.data.validate.reset();
  Ask({{2, StageOf(kTestStage)},
       {2, StageOf(kValidateStage)},
       {2, StageOf("fit")},
       {2, PromptOf({0}, 8)},
       {2, PromptOf({29}, 1)}});
  const auto run = Good(job);
  EXPECT_THAT(run->coordinator.losses(), SizeIs(12));
  const auto ended = run->coordinator.ended();
  const auto expect = [&](int64_t number, const char* reason, const char* message) {
    EXPECT_EQ(ended.at(number).reason, reason) << number;
    EXPECT_THAT(std::string(ended.at(number).status.message()), HasSubstr(message)) << number;
  };
  expect(1, "", "data.test: every target of the 6 samples is ignored");
  expect(2, "NO_DATA", "no data for a stage 'validate'");
  expect(3, "NO_DATA", "no data for a stage 'fit'");
  expect(4, "SAMPLE_INVALID", "expected at most 8 tokens (the model's context)");
  expect(5, "SAMPLE_INVALID", "expected an id from 0 to 28");
}

// One rank finds the fault. The other rank takes part until both know.
TEST_F(RequestsTest, DataThatCannotBeReadEndTheCommandAndTrainingGoesOn) {
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    Job job;
    *job.spec.mutable_model() =
        models::SpecFromText("mlp", R"({"inputs": 16, "hidden": [4], "classes": 3})");
    job.data.train = Images("train.safetensors", 12);
    job.data.test = Images("test.safetensors", 12, /*per_rank=*/false, /*nan_at=*/15);
    job.strategy = strategy;
    job.optimizer = OptimizerConfig{0.01, optim::AdamWOptions{}};
    job.batch = {.per_rank = 2};
    job.stages = {FitStage{4, 0}};
    Ask({{2, StageOf(kTestStage)}});
    const auto run = Good(job);
    const absl::Status ended = run->coordinator.ended().at(1).status;
    EXPECT_THAT(std::string(ended.message()), HasSubstr("expected finite numbers, found nan"));
    EXPECT_THAT(run->coordinator.losses(), SizeIs(4));
  }
}

TEST_F(RequestsTest, AModelOfRowsContinuesNoPrompt) {
  Job job;
  *job.spec.mutable_model() =
      models::SpecFromText("mlp", R"({"inputs": 16, "hidden": [4], "classes": 3})");
  job.data.train = Images("train.safetensors", 12);
  job.strategy = Strategies()[0];
  job.optimizer = OptimizerConfig{0.01, optim::AdamWOptions{}};
  job.batch = {.per_rank = 2};
  job.stages = {FitStage{2, 0}};
  Ask({{1, kGreedy}});
  const auto run = Good(job);
  EXPECT_EQ(run->coordinator.ended().at(1).reason, "CANNOT_GENERATE");
  EXPECT_THAT(std::string(run->coordinator.finished().at(1).message()),
              HasSubstr("cannot generate"));
}

// The job continues on other nodes from a checkpoint that includes the command.
TEST_F(RequestsTest, APassWhoseEndNobodyHeardOfIsRunAgain) {
  Job job = SmallJob();
  job.checkpoint = Every(4);
  Ask({{3, StageOf(kTestStage)}, {6, A(v1::StopCommand())}});
  const auto first = RunSessions(job, 2);
  ASSERT_TRUE(first->ends[0].ok()) << first->ends[0].status();
  // The command as the coordinator sends it to the next generation.
  Ask({{3, StageOf(kTestStage)}, {0, A(v1::NoCommand())}});
  commands_[0].set_begun(true);
  const auto second = RunSessions(job, 2, 2, first->coordinator.checkpoints());
  ASSERT_TRUE(second->ends[0].ok()) << second->ends[0].status();
  EXPECT_EQ(Evaluated(*second, 1).step, 6) << "it began after step 6";
  EXPECT_EQ(second->coordinator.losses().begin()->first, 7);
}

}  // namespace
}  // namespace muster::train
