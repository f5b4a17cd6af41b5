#include "worker/models/language/generate.h"

#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/argmax.h"
#include "ATen/ops/tensor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker/memory/counting_allocator.h"
#include "worker/models/language/language_model_maker.h"
#include "worker/models/seed.h"

namespace muster::models {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using Completions = std::vector<std::vector<int64_t>>;

LanguageModelMaker Maker(const std::string& kind) {
  nlohmann::json options = {
      {"vocab_size", 17}, {"context", 24}, {"layers", 2}, {"heads", 4}, {"width", 16}};
  if (kind == "llama") options.update({{"kv_heads", 2}, {"inner", 20}});
  return LanguageModelMaker(kind, options);
}

// A model that computes as another one does, and keeps no keys and values.
class ModelOfWholeSequences : public Model {
 public:
  ModelOfWholeSequences(std::shared_ptr<Model> model, std::optional<int64_t> length)
      : Model("whole", std::make_unique<Root>(model)), model_(model), length_(length) {}

  std::optional<Continuation> continuation() const override {
    return WholeSequences{.vocabulary = model_->Input().vocab_size, .length = length_};
  }

 protected:
  InputSpec UnitsInput() const override { return model_->Input(); }

 private:
  class Root : public Unit {
   public:
    explicit Root(std::shared_ptr<Model> model) : Unit(""), model_(std::move(model)) {
      for (const Parameter& one : model_->Parameters()) AddParameter(one.name, one.tensor);
    }
    at::Tensor Forward(const at::Tensor& x, ForwardContext& context) override {
      EXPECT_EQ(context.cache(), nullptr);
      return context.Call(model_->root(), x);
    }

   private:
    const std::shared_ptr<Model> model_;
  };

  const std::shared_ptr<Model> model_;
  const std::optional<int64_t> length_;
};

std::unique_ptr<Model> ModelOf(const std::string& kind) {
  const std::string name = kind == "llama" ? "llama" : "gpt2";
  std::unique_ptr<Model> model = Maker(name).Make(Maker(name).small());
  FollowTheText(*model);
  if (kind == name) return model;
  const auto length = kind == "sequences_of_one_length" ? std::optional<int64_t>(24) : std::nullopt;
  return std::make_unique<ModelOfWholeSequences>(std::move(model), length);
}

class GenerateTest : public ::testing::TestWithParam<const char*> {
 protected:
  GenerateTest() : model_(ModelOf(GetParam())) {}

  // Returns the completions of all prompts, batch by batch.
  Completions Generate(const GenerationRequest& request) {
    EXPECT_EQ(CheckGeneration(request, *model_), absl::OkStatus());
    Completions all;
    for (const PromptBatch& batch : BatchesOf(request, *model_->continuation())) {
      for (auto& tokens : GenerateBatch(request, batch, *model_, context_, at::kCPU)) {
        all.push_back(std::move(tokens));
      }
    }
    return all;
  }

  const std::unique_ptr<Model> model_;
  ForwardContext context_{Mode::kTrain, MakeGenerator(0)};
};

const Completions& Prompts() {
  static const auto& prompts = *new Completions{{3, 10, 0}, {16},       {1, 2, 3, 4, 5, 6, 7, 8},
                                                {9, 9},     {3, 10, 0}, {5, 0, 0, 0, 0}};
  return prompts;
}

TEST_P(GenerateTest, GreedyTokensAreTheMostLikelyOnesOfForwardsWithoutCache) {
  const Completions found = Generate({.prompts = Prompts(), .max_tokens = 12});
  std::set<int64_t> different;
  for (size_t i = 0; i < Prompts().size(); ++i) {
    std::vector<int64_t> text = Prompts()[i];
    for (int64_t made = 0; made < 12; ++made) {
      const at::Tensor tokens =
          at::tensor(text, at::kLong).view({1, static_cast<int64_t>(text.size())});
      text.push_back(Evaluate(*model_, tokens)[0][-1].argmax().item<int64_t>());
    }
    EXPECT_EQ(found[i], std::vector<int64_t>(text.end() - 12, text.end())) << "prompt " << i;
    different.insert(found[i].begin(), found[i].end());
  }
  EXPECT_GT(different.size(), 5u);  // a model that repeats one token would hide faults
}

TEST_P(GenerateTest, APromptsTokensDoNotDependOnTheOtherPrompts) {
  for (const Sampling& sampling : {Sampling{}, Sampling{.temperature = 1, .seed = 8}}) {
    const Completions together =
        Generate({.prompts = Prompts(), .max_tokens = 12, .sampling = sampling});
    for (size_t i = 0; i < Prompts().size(); ++i) {
      Completions others(Prompts().size(), {7});
      others[i] = Prompts()[i];
      const Completions found =
          Generate({.prompts = others, .max_tokens = 12, .sampling = sampling});
      EXPECT_EQ(found[i], together[i]) << i;
    }
  }
  const Completions together = Generate({.prompts = Prompts(), .max_tokens = 12});
  for (size_t i = 0; i < Prompts().size(); ++i) {
    EXPECT_THAT(Generate({.prompts = {Prompts()[i]}, .max_tokens = 12}), ElementsAre(together[i]));
  }
}

TEST_P(GenerateTest, EqualPromptsAreContinuedDifferentlyOnlyIfTokensAreDrawn) {
  const Completions greedy = Generate({.prompts = Prompts(), .max_tokens = 12});
  EXPECT_EQ(greedy[0], greedy[4]);
  const Completions drawn =
      Generate({.prompts = Prompts(), .max_tokens = 12, .sampling = {.temperature = 1}});
  EXPECT_NE(drawn[0], drawn[4]);
  // The same for prompts in several batches.
  const Completions many = Generate(
      {.prompts = Completions(40, {3, 10, 0}), .max_tokens = 12, .sampling = {.temperature = 1}});
  EXPECT_EQ(std::set(many.begin(), many.end()).size(), 40u);
  const Completions other_seed =
      Generate({.prompts = Prompts(), .max_tokens = 12, .sampling = {.temperature = 1, .seed = 1}});
  EXPECT_NE(drawn[0], other_seed[0]);
  // With top_k = 1 only the most likely token remains.
  const Completions top_one = Generate(
      {.prompts = Prompts(), .max_tokens = 12, .sampling = {.temperature = 1, .top_k = 1}});
  EXPECT_EQ(top_one, greedy);
}

TEST_P(GenerateTest, ATextContinuedInTwoPartsIsTheTextContinuedAtOnce) {
  for (const Sampling& sampling : {Sampling{}, Sampling{.temperature = 1, .seed = 8}}) {
    const Completions at_once =
        Generate({.prompts = Prompts(), .max_tokens = 12, .sampling = sampling});
    const Completions begin =
        Generate({.prompts = Prompts(), .max_tokens = 5, .sampling = sampling});
    Completions longer = Prompts();
    for (size_t i = 0; i < longer.size(); ++i) {
      longer[i].insert(longer[i].end(), begin[i].begin(), begin[i].end());
    }
    const Completions rest = Generate({.prompts = longer, .max_tokens = 7, .sampling = sampling});
    for (size_t i = 0; i < longer.size(); ++i) {
      std::vector<int64_t> both = begin[i];
      both.insert(both.end(), rest[i].begin(), rest[i].end());
      EXPECT_EQ(both, at_once[i]) << i;
    }
  }
}

TEST_P(GenerateTest, ThePromptMayFillTheContextUpToTheNewTokens) {
  std::vector<int64_t> prompt(23);
  std::iota(prompt.begin(), prompt.end(), 0);
  for (int64_t& token : prompt) token %= 17;
  const at::Tensor tokens = at::tensor(prompt, at::kLong).view({1, 23});
  EXPECT_THAT(Generate({.prompts = {prompt}, .max_tokens = 1}),
              ElementsAre(ElementsAre(Evaluate(*model_, tokens)[0][-1].argmax().item<int64_t>())));
}

TEST_P(GenerateTest, NothingOfTrainingIsTouched) {
  const at::Tensor state = context_.generator().get_state().clone();
  Generate({.prompts = Prompts(), .max_tokens = 4, .sampling = {.temperature = 1}});
  EXPECT_TRUE(context_.training());
  EXPECT_EQ(context_.cache(), nullptr);
  EXPECT_TRUE(context_.generator().get_state().equal(state));
  for (const Parameter& parameter : model_->Parameters()) {
    EXPECT_FALSE(parameter.tensor.grad().defined()) << parameter.name;
  }
  EXPECT_TRUE(at::GradMode::is_enabled());
}

class GenerateWithCacheTest : public GenerateTest {};

TEST_P(GenerateWithCacheTest, MemoryIsThatOfTheCacheAndIsFreed) {
  memory::InstallCountingAllocator();
  const GenerationRequest request = {.prompts = Completions(16, std::vector<int64_t>(1, 1)),
                                     .max_tokens = 23};
  Generate(request);  // allocates rotary tables and the like
  const auto in_use = [] { return memory::MemoryInUse().total; };
  const uint64_t before = in_use().bytes;
  memory::ResetPeaks();
  Generate(request);
  EXPECT_EQ(in_use().bytes, before);
  const auto shape = std::get<KeyValueShape>(*model_->continuation());
  const auto cache = static_cast<uint64_t>(shape.BytesPerPosition() * 16 * 24);
  EXPECT_GE(in_use().peak_bytes - before, cache);
  // A forward of one token of 16 prompts needs less than 32 times the width (16) for each prompt.
  EXPECT_LT(in_use().peak_bytes - before, cache + 16 * 32 * 16 * 4);
}

TEST_P(GenerateTest, FromLogitsThatAreNotFiniteOnAPromptHasNoTokens) {
  {
    const at::NoGradGuard no_grad;
    // The embedding of a token that only one prompt holds. The embedding must not be the head, too.
    model_->Parameters()[0].tensor[16].fill_(std::numeric_limits<float>::quiet_NaN());
  }
  const auto untied = std::string(GetParam()) == "llama";
  const Completions found = Generate({.prompts = Prompts(), .max_tokens = 3});
  EXPECT_THAT(found[1], Each(kNoToken));
  EXPECT_THAT(found, Each(SizeIs(3)));
  if (untied) {
    EXPECT_THAT(found[3], Each(::testing::Ge(0)));
  }
}

std::string NameOf(const testing::TestParamInfo<const char*>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(All, GenerateTest,
                         ::testing::Values("gpt2", "llama", "sequences", "sequences_of_one_length"),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(All, GenerateWithCacheTest, ::testing::Values("gpt2", "llama"), NameOf);

TEST(CheckGeneration, SaysWhatIsWrongWithWhichPrompt) {
  const auto model = Maker("gpt2").Make(Maker("gpt2").small());
  const auto error = [&](GenerationRequest request) {
    const absl::Status status = CheckGeneration(request, *model);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(error({.prompts = {{1}, {}}, .max_tokens = 1}),
            "generate: prompts[1]: expected at least one token, found none");
  EXPECT_EQ(error({.prompts = {{1, 2, 17, 18}}, .max_tokens = 1}),
            "generate: prompts[0]: token 2: expected an id from 0 to 16 (the model's vocabulary), "
            "found 17");
  EXPECT_EQ(error({.prompts = {{1}, {-1}}, .max_tokens = 1}),
            "generate: prompts[1]: token 0: expected an id from 0 to 16 (the model's vocabulary), "
            "found -1");
  EXPECT_EQ(
      error({.prompts = {{1}, {1, 2, 3}}, .max_tokens = 22}),
      "generate: prompts[1]: expected at most 24 tokens (the model's context), found 3 and 22 "
      "new ones (max_tokens); shorten the prompt or lower max_tokens");
  EXPECT_THAT(error({.prompts = {{1}}, .max_tokens = std::numeric_limits<int64_t>::max()}),
              HasSubstr("prompts[0]: expected at most 24 tokens"));
  EXPECT_EQ(error({.prompts = {}, .max_tokens = 1}),
            "generate: prompts: expected at least one, found none");
  for (const int64_t few : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    EXPECT_EQ(error({.prompts = {{1}}, .max_tokens = few}),
              absl::StrCat("generate: max_tokens: expected at least 1, found ", few));
  }
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(error({.prompts = {{1}}, .max_tokens = 1, .sampling = {.temperature = bad}}),
                HasSubstr("generate: temperature: expected a finite number above 0, found "));
  }
  EXPECT_THAT(
      error({.prompts = {{1}}, .max_tokens = 1, .sampling = {.temperature = 1, .top_k = 0}}),
      HasSubstr("top_k: expected at least 1, found 0"));
  EXPECT_THAT(error({.prompts = {{1}}, .max_tokens = 1, .sampling = {.top_k = 5}}),
              HasSubstr("top_k: has no effect without temperature"));
  EXPECT_THAT(error({.prompts = Completions(100000, {1}), .max_tokens = 20}),
              HasSubstr("expected at most 1048576 new tokens at once, found max_tokens 20 for each "
                        "of 100000 prompts"));
  EXPECT_THAT(error({.prompts = Completions(5), .max_tokens = 1}),
              AllOf(HasSubstr("prompts[2]"), HasSubstr("and 2 more")));
}

TEST(CheckGeneration, OnlyLanguageModelsGenerate) {
  const LanguageModelMaker mlp("mlp", {{"inputs", 4}, {"hidden", {3}}, {"classes", 2}});
  EXPECT_EQ(CheckGeneration({.prompts = {{1}}, .max_tokens = 1}, *mlp.Make(mlp.small())),
            absl::InvalidArgumentError(
                "generate: found model mlp, which cannot generate; allowed: gpt2, llama, hf, and "
                "exported language models"));
}

TEST(BatchesOf, TakeAsManyPromptsAsFit) {
  const KeyValueShape small = {.layers = 1, .heads = 1, .head = 1};
  GenerationRequest request = {.prompts = Completions(35, {1}), .max_tokens = 9};
  EXPECT_THAT(BatchesOf(request, small),
              ElementsAre(PromptBatch{0, 16}, PromptBatch{16, 32}, PromptBatch{32, 35}));
  // 10 positions of one prompt take 64 MiB, so four prompts fit.
  const KeyValueShape large = {.layers = 8, .heads = 8, .head = (64 << 20) / 10 / 8 / 8 / 2 / 4};
  request.prompts.resize(9, {1});
  EXPECT_THAT(BatchesOf(request, large),
              ElementsAre(PromptBatch{0, 4}, PromptBatch{4, 8}, PromptBatch{8, 9}));
  // A longer prompt makes all prompts of its batch as long. A single prompt always fits.
  request.prompts = {{1}, {1}, std::vector<int64_t>(11, 1), {1}, std::vector<int64_t>(100, 1)};
  EXPECT_THAT(BatchesOf(request, large),
              ElementsAre(PromptBatch{0, 2}, PromptBatch{2, 4}, PromptBatch{4, 5}));
  // The logits of 10 positions take 64 MiB.
  const int64_t vocabulary = (64 << 20) / 10 / 4;
  request.prompts = Completions(9, {1});
  EXPECT_THAT(BatchesOf(request, WholeSequences{.vocabulary = vocabulary}),
              ElementsAre(PromptBatch{0, 4}, PromptBatch{4, 8}, PromptBatch{8, 9}));
  EXPECT_THAT(BatchesOf(request, WholeSequences{.vocabulary = vocabulary / 2, .length = 40}),
              ElementsAre(PromptBatch{0, 2}, PromptBatch{2, 4}, PromptBatch{4, 6},
                          PromptBatch{6, 8}, PromptBatch{8, 9}));
}

}  // namespace
}  // namespace muster::models
