// The stages `predict` of a session. The ranks are threads.
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/safetensors/safetensors.h"
#include "common/status/status.h"
#include "worker/models/spec_from_json.h"
#include "worker/parallel/recording.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/ranks/rank_threads.h"
#include "worker/train/session/session_fixture.h"
#include "worker/train/training/setup.h"

namespace muster::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kUuid[] = "0a1b2c3d-4e5f-4a6b-8c9d-0e1f2a3b4c5d";

// Calls `watch` before each all-gather with the label `what`.
class Watching : public parallel::Recording {
 public:
  Watching(comm::Communicator* communicator, std::string what, std::function<void()> watch)
      : Recording(communicator), what_(std::move(what)), watch_(std::move(watch)) {}
  std::unique_ptr<comm::Work> AllGather(const at::Tensor& out, const at::Tensor& in,
                                        comm::OpLabel label) override {
    if (label.what == what_) watch_();
    return Recording::AllGather(out, in, label);
  }

 private:
  const std::string what_;
  const std::function<void()> watch_;
};

class PredictTest : public SessionTest {
 protected:
  static constexpr int64_t kSamples = 13;

  void SetUp() override {
    SessionTest::SetUp();
    WriteTokens("predict.bin", 8 * kSamples + 1);
  }
  // Returns a job that only predicts 13 samples in batches of 3.
  Job PredictJob() const {
    Job job = SmallJob();
    job.optimizer.reset();
    job.data.train.reset();
    job.data.validate.reset();
    job.data.predict = TokenFiles{{folder_ / "predict.bin"}};
    job.stages = {Logits()};
    return job;
  }
  PredictStage Logits(const std::string& name = "p.safetensors") const {
    return {.output = folder_ / "out" / name};
  }
  PredictStage Texts() const {
    return {.output = folder_ / "out/texts.json",
            .generate = GenerateConfig{.prompts = {{1, 2, 3}, {4}, {5, 6}}, .max_tokens = 4}};
  }
  std::unique_ptr<Result> Good(const Job& job, int world_size, int64_t generation = 1) {
    auto run = RunSessions(job, world_size, generation);
    for (const auto& end : run->ends) EXPECT_TRUE(end.ok()) << end.status();
    return run;
  }
  absl::Status ErrorOf(const Job& job, int world_size, int64_t generation = 1) {
    const auto run = RunSessions(job, world_size, generation);
    for (const auto& end : run->ends) {
      EXPECT_FALSE(end.ok());
      EXPECT_EQ(end.status().message(), run->ends[0].status().message());
    }
    return run->ends[0].status();
  }
  std::string Read(const std::string& name) const {
    const auto contents = files::ReadFile(folder_ / "out" / name);
    EXPECT_TRUE(contents.ok()) << contents.status();
    return contents.ok() ? *contents : "";
  }
  at::Tensor ReadTensor(const std::string& name, const std::string& tensor) const {
    const auto file = safetensors::File::Open(folder_ / "out" / name);
    EXPECT_TRUE(file.ok()) << file.status();
    const safetensors::Entry* entry = file->Find(tensor);
    EXPECT_NE(entry, nullptr);
    EXPECT_EQ(file->header().entries.size(), 1u);
    return at::from_blob(const_cast<uint8_t*>(file->data(*entry)), entry->shape,
                         entry->dtype == safetensors::DType::kI64 ? at::kLong : at::kFloat)
        .clone();
  }
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "out")) {
      names.insert(entry.path().filename());
    }
    return names;
  }
};

TEST_F(PredictTest, EveryStrategyAndWorldSizeWritesTheSameBytes) {
  Job job = PredictJob();
  PredictStage classes{.output = folder_ / "out/classes.npy", .what = PredictStage::What::kClasses};
  job.stages = {Logits(), classes, Texts()};
  std::map<std::string, std::string> expected;
  for (const StrategyConfig& strategy : Strategies()) {
    job.strategy = strategy;
    for (const int world_size : {1, 2, 3, 4}) {
      SCOPED_TRACE(absl::StrCat(StrategyName(strategy), ", ", world_size, " ranks"));
      std::filesystem::remove_all(folder_ / "out");
      const auto run = Good(job, world_size);
      EXPECT_THAT(Names(), ElementsAre("classes.npy", "p.safetensors", "texts.json"));
      for (const std::string& name : Names()) {
        const auto [first, added] = expected.emplace(name, Read(name));
        EXPECT_TRUE(first->second == Read(name)) << name;
      }
      EXPECT_THAT(run->coordinator.stages(), ElementsAre("predict", "predict", "predict"));
      EXPECT_EQ(run->coordinator.stages_done().stages, 3);
      std::vector<std::string> told;
      for (const Notice& notice : run->coordinator.notices()) {
        if (notice.reason == "PREDICTIONS_WRITTEN") told.push_back(notice.message);
      }
      const std::string out = folder_ / "out";
      EXPECT_THAT(
          told,
          ElementsAre(
              "stages[0].predict: " + out + "/p.safetensors has logits, float32 [13, 8, 29]",
              "stages[1].predict: " + out + "/classes.npy has classes, int64 [13, 8]",
              "stages[2].predict: " + out + "/texts.json has 4 new tokens for each of 3 prompts"));
    }
  }
  // A batch of one sample has other matrix products, so other rounding errors.
  const auto model = *BuildModel(job, nullptr);
  models::ForwardContext context(models::Mode::kEvaluate, {});
  const c10::AutoGradMode no_gradients(false);
  const at::Tensor logits = ReadTensor("p.safetensors", "logits");
  ASSERT_EQ(logits.sizes(), (at::IntArrayRef{kSamples, 8, 29}));
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    std::vector<int64_t> tokens;
    for (int64_t i = sample * 8; i < sample * 8 + 8; ++i) tokens.push_back(i * i % 29);
    const at::Tensor inputs = at::from_blob(tokens.data(), {1, 8}, at::kLong);
    const at::Tensor own = model->Logits(inputs, context)[0];
    EXPECT_LT(own.sub(logits[sample]).abs().max().item<float>(), 1e-5) << sample;
  }
}

TEST_F(PredictTest, FilesOfTheRanksOwnFollowOneAnother) {
  const std::map<std::string, int> samples = {{"a", 5}, {"b", 0}, {"c", 7}, {"d", 1}};
  Job job = PredictJob();
  TokenFiles own{.per_rank = true};
  std::vector<at::Tensor> parts;
  for (const auto& [name, count] : samples) {
    // Each file begins with other tokens.
    std::ofstream file(folder_ / name, std::ios::binary);
    for (int i = 0; i < 8 * count + 1; ++i) {
      const uint16_t token = (i * i + name[0]) % 29;
      file.write(reinterpret_cast<const char*>(&token), 2);
    }
    file.close();
    own.paths.push_back(folder_ / name);
    if (count == 0) continue;
    job.data.predict = TokenFiles{{folder_ / name}};
    job.stages = {Logits(name + ".safetensors")};
    Good(job, 1);
    parts.push_back(ReadTensor(name + ".safetensors", "logits"));
  }
  job.data.predict = own;
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    job.strategy = strategy;
    PredictStage all = Logits();
    all.overwrite = true;
    job.stages = {all};
    Good(job, 4);
    const at::Tensor logits = ReadTensor("p.safetensors", "logits");
    ASSERT_EQ(logits.size(0), 13);
    int64_t at = 0;
    for (const at::Tensor& part : parts) {
      EXPECT_TRUE(logits.narrow(0, at, part.size(0)).equal(part)) << at;
      at += part.size(0);
    }
  }
}

TEST_F(PredictTest, RowsNeedNoLabels) {
  Job job = PredictJob();
  job.spec.mutable_model()->Clear();
  *job.spec.mutable_model() =
      models::SpecFromText("mlp", R"({"inputs": 4, "hidden": [8], "classes": 3})");
  const auto plan = safetensors::Plan({{"inputs", safetensors::DType::kF32, {7, 4}}}, {});
  std::string file = plan->prefix;
  for (int i = 0; i < 28; ++i) {
    const float value = static_cast<float>(i % 5) - 2;
    file.append(reinterpret_cast<const char*>(&value), 4);
  }
  ASSERT_TRUE(files::WriteAtomically(folder_ / "rows", file).ok());
  job.data.predict = RowFiles{{folder_ / "rows"}};
  PredictStage classes = Logits("c.safetensors");
  classes.what = PredictStage::What::kClasses;
  job.stages = {Logits(), classes};
  Good(job, 2);
  const at::Tensor logits = ReadTensor("p.safetensors", "logits");
  EXPECT_EQ(logits.sizes(), (at::IntArrayRef{7, 3}));
  EXPECT_TRUE(ReadTensor("c.safetensors", "classes").equal(logits.argmax(-1)));
}

TEST_F(PredictTest, UnderAnotherPrecisionTheLogitsAreStillFloat32) {
  Job job = PredictJob();
  job.stages = {Logits("a.safetensors")};
  Good(job, 2);
  job.numerics.precision = Precision::kBfloat16;
  job.stages = {Logits("b.safetensors")};
  Good(job, 2);
  const at::Tensor full = ReadTensor("a.safetensors", "logits");
  const at::Tensor rounded = ReadTensor("b.safetensors", "logits");
  EXPECT_EQ(rounded.scalar_type(), at::kFloat);
  EXPECT_FALSE(rounded.equal(full));
  EXPECT_LT(rounded.sub(full).abs().max().item<float>(), 0.05);
}

// The model of SmallJob draws random numbers in training.
TEST_F(PredictTest, TrainingIsBitwiseTheSameWithPredictionsInBetween) {
  for (const StrategyConfig& strategy : Strategies()) {
    SCOPED_TRACE(StrategyName(strategy));
    std::filesystem::remove_all(folder_ / "out");
    Job job = SmallJob();
    job.data.predict = TokenFiles{{folder_ / "predict.bin"}};
    job.strategy = strategy;
    job.numerics.precision = Precision::kFloat16;
    job.numerics.loss_scale.growth_interval = 3;
    const auto plain = Good(job, 2);
    job.stages = {Logits("0.npy"), FitStage{4, 0}, Logits("4.npy"),
                  Texts(),         FitStage{8, 0}, Logits("12.npy")};
    const auto staged = Good(job, 2);
    EXPECT_EQ(staged->coordinator.losses(), plain->coordinator.losses());
    EXPECT_NE(Read("0.npy"), Read("4.npy"));
    EXPECT_NE(Read("4.npy"), Read("12.npy"));
  }
}

TEST_F(PredictTest, AGenerationThatRepeatsTheStageFindsItsOwnFile) {
  const Job job = PredictJob();
  Good(job, 2);
  const auto again = Good(job, 3, /*generation=*/2);
  ASSERT_EQ(again->coordinator.notices().size(), 1u);
  EXPECT_THAT(again->coordinator.notices()[0].message,
              HasSubstr("it was there already, with the same bytes"));
  EXPECT_THAT(Names(), ElementsAre("p.safetensors"));
}

// The weights change as after `resume --from`.
TEST_F(PredictTest, AGenerationWithOtherWeightsReplacesItsOwnFile) {
  Job job = SmallJob();
  job.spec.set_name("predicts");  // the name that signs the file
  job.data.predict = TokenFiles{{folder_ / "predict.bin"}};
  job.stages = {FitStage{2, 0}, Logits()};
  Good(job, 2);
  const std::string before = Read("p.safetensors");
  job.stages = {FitStage{3, 0}, Logits()};
  Good(job, 2, /*generation=*/2);
  EXPECT_NE(Read("p.safetensors"), before);
}

TEST_F(PredictTest, AnotherFileIsNeverReplacedUnlessTheJobSaysSo) {
  Job job = SmallJob();
  job.data.predict = TokenFiles{{folder_ / "predict.bin"}};
  job.stages = {FitStage{2, 0}, Logits()};
  std::filesystem::create_directories(folder_ / "out");
  ASSERT_TRUE(files::WriteAtomically(folder_ / "out/p.safetensors", "theirs").ok());
  // The first generation finds the file before it trains.
  const auto first = RunSessions(job, 2);
  const absl::Status at_start = first->ends[1].status();
  EXPECT_EQ(at_start.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Message(at_start),
              AllOf(HasSubstr("stages[1].predict.output: "), HasSubstr("overwrite: true")));
  EXPECT_TRUE(first->coordinator.losses().empty());
  // A later generation compares the bytes first, because the file may be the job's own.
  const absl::Status later = ErrorOf(job, 2, /*generation=*/2);
  EXPECT_EQ(later.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Message(later), HasSubstr("the file that is there has other contents"));
  EXPECT_EQ(CauseOf(later), Cause::kFinalSaveFailed) << "nothing is trained again";
  EXPECT_EQ(Classify(later, Phase::kRun), FailureKind::kPermanent);
  EXPECT_EQ(Read("p.safetensors"), "theirs");
  EXPECT_THAT(Names(), ElementsAre("p.safetensors"));
  std::get<PredictStage>(job.stages[1]).overwrite = true;
  Good(job, 2);
  EXPECT_EQ(ReadTensor("p.safetensors", "logits").size(0), kSamples);
}

// A rank that hears of the error may end the job, and rank 0 may then be killed.
TEST_F(PredictTest, AFileThatGetsNoNameIsGoneBeforeOtherRanksHearOfIt) {
  const Job job = PredictJob();
  std::filesystem::create_directories(folder_ / "out");
  ASSERT_TRUE(files::WriteAtomically(folder_ / "out/p.safetensors", "theirs").ok());
  InMemoryCoordinator coordinator;
  std::set<std::string> there;
  RunRanks(2, [&](int rank, comm::Communicator& control, comm::Communicator& gradients,
                  comm::Communicator& parameters, comm::Communicator& files) {
    Watching watching(&control, "predictions written", [&] {
      if (rank == 0) there = Names();
    });
    SessionParts parts{.control = &watching,
                       .gradients = &gradients,
                       .parameters = &parameters,
                       .files = &files,
                       .commands = &coordinator,
                       .events = &coordinator,
                       .checkpoints = {}};
    auto session = Session::Create(
        {"job", "this", /*generation=*/2, rank, "process-" + std::to_string(rank)}, job, parts);
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_EQ((*session)->Run().status().code(), absl::StatusCode::kAlreadyExists);
  });
  EXPECT_THAT(there, ElementsAre("p.safetensors"));
}

TEST_F(PredictTest, AFolderThatCannotBeWrittenIsFoundBeforeTraining) {
  Job job = SmallJob();
  job.data.predict = TokenFiles{{folder_ / "predict.bin"}};
  PredictStage stage = Logits();
  stage.output = folder_ / "predict.bin" / "p.npy";  // a file in place of the folder
  job.stages = {FitStage{2, 0}, stage};
  const auto run = RunSessions(job, 2);
  for (const auto& end : run->ends) {
    EXPECT_THAT(Message(end.status()), HasSubstr("stages[1].predict.output: "));
  }
  EXPECT_TRUE(run->coordinator.losses().empty());
}

TEST_F(PredictTest, WhatAnEarlierGenerationLeftIsRemoved) {
  std::filesystem::create_directories(folder_ / "out");
  const std::string left = absl::StrCat(".p.safetensors.job-g1-", kUuid, ".tmp");
  ASSERT_TRUE(files::WriteAtomically(folder_ / "out" / left, "half").ok());
  Good(PredictJob(), 2, /*generation=*/2);
  EXPECT_THAT(Names(), ElementsAre("p.safetensors"));
}

TEST_F(PredictTest, PromptsOfAFileAreReadByRank0AtTheStart) {
  Job job = PredictJob();
  job.data.predict.reset();
  job.stages = {Texts()};
  Good(job, 2);
  const std::string expected = Read("texts.json");
  EXPECT_THAT(expected,
              testing::MatchesRegex(
                  R"(\{"completions": \[\{"prompt": \[1, 2, 3\], "tokens": \[[0-9, ]+\]\})"
                  R"(, \{"prompt": \[4\], "tokens": \[[0-9, ]+\]\})"
                  R"(, \{"prompt": \[5, 6\], "tokens": \[[0-9, ]+\]\}\]\})"
                  "\n"));
  std::filesystem::remove_all(folder_ / "out");
  PredictStage stage = Texts();
  stage.generate->prompts.clear();
  stage.generate->prompts_from = folder_ / "prompts.json";
  job.stages = {stage};
  for (int rank = 1; rank < 3; ++rank) {  // these ranks do not see the file
    jobs_[rank] = job;
    std::get<PredictStage>(jobs_[rank].stages[0]).generate->prompts_from = "/none";
  }
  EXPECT_THAT(Message(ErrorOf(job, 3)),
              AllOf(HasSubstr("stages[0].predict: generate.prompts: "), HasSubstr("No such file")));
  const auto write = [&](const std::string& text) {
    ASSERT_TRUE(files::WriteAtomically(folder_ / "prompts.json", text).ok());
  };
  write("[[1, 2, 3], [4], 5]");
  EXPECT_THAT(Message(ErrorOf(job, 3)), HasSubstr("prompts.json: prompts[2]: expected a list"));
  write("[[1, 2, 3], [4], [5, 29]]");
  EXPECT_THAT(Message(ErrorOf(job, 3)), HasSubstr("prompts[2]: token 1: expected an id from 0"));
  write("[[1, 2, 3], [4], [5, 6]]");
  Good(job, 3);
  EXPECT_EQ(Read("texts.json"), expected);
}

}  // namespace
}  // namespace muster::train
