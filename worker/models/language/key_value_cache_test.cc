#include "worker/models/language/key_value_cache.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker/memory/counting_allocator.h"
#include "worker/models/language/language_model_maker.h"
#include "worker/models/recording_context.h"
#include "worker/models/seed.h"

namespace muster::models {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

struct Variant {
  std::string name;
  LanguageModelMaker maker;
};

const std::vector<Variant>& Variants() {
  const auto gpt2 = [](const nlohmann::json& more) {
    nlohmann::json options = {
        {"vocab_size", 17}, {"context", 12}, {"layers", 2}, {"heads", 3}, {"width", 12}};
    options.update(more);
    return LanguageModelMaker("gpt2", options);
  };
  const auto llama = [](int heads, int kv_heads, bool tied) {
    return LanguageModelMaker("llama", {{"vocab_size", 17},
                                        {"context", 12},
                                        {"layers", 2},
                                        {"heads", heads},
                                        {"kv_heads", kv_heads},
                                        {"width", 24},
                                        {"inner", 20},
                                        {"tied", tied}});
  };
  static const auto& all = *new std::vector<Variant>{{"Gpt2", gpt2({{"dropout", 0.5}})},
                                                     {"Gpt2Untied", gpt2({{"tied", false}})},
                                                     {"LlamaMultiHead", llama(4, 4, false)},
                                                     {"LlamaGroupedQuery", llama(6, 3, false)},
                                                     {"LlamaMultiQueryTied", llama(4, 1, true)}};
  return all;
}

class KeyValueCacheTest : public ::testing::TestWithParam<size_t> {
 protected:
  const LanguageModelMaker& maker() const { return Variants()[GetParam()].maker; }

  std::unique_ptr<Model> Random() const {
    auto model = maker().Make(maker().small());
    FollowTheText(*model);
    return model;
  }

  // Returns the logits of the last token of each row, [B, 17]: after the prompts, and after each of
  // `more` further tokens. The prompts are the first `lengths` tokens of the rows of `texts`.
  static std::vector<at::Tensor> WithCache(Model& model, const at::Tensor& texts,
                                           const std::vector<int64_t>& lengths, int64_t more,
                                           int64_t filler = 0) {
    const at::NoGradGuard no_grad;
    const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    KeyValueCache cache(lengths, longest + more, at::kCPU);
    ForwardContext context(Mode::kTrain, MakeGenerator(0));
    const ForwardContext::Generating generating(&context, &cache);
    at::Tensor tokens = texts.narrow(1, 0, longest).clone();
    for (size_t row = 0; row < lengths.size(); ++row) {
      tokens[row].narrow(0, lengths[row], longest - lengths[row]).fill_(filler);
    }
    std::vector<at::Tensor> logits = {model.Logits(tokens, context).squeeze(1)};
    for (int64_t i = 0; i < more; ++i) {
      cache.Advance();
      for (size_t row = 0; row < lengths.size(); ++row) {
        tokens[row][0] = texts[row][lengths[row] + i];
      }
      logits.push_back(model.Logits(tokens.narrow(1, 0, 1).contiguous(), context).squeeze(1));
    }
    return logits;
  }
};

// The computation of one position uses other matrix products and another attention kernel, which
// add in another order. So the bits differ, but only by 1e-5 of logits between 0.2 and 10.
TEST_P(KeyValueCacheTest, LogitsAreThoseOfTheWholeTexts) {
  const auto model = Random();
  const at::NoGradGuard no_grad;
  const at::Tensor texts = Tokens(3, 12);
  const std::vector<int64_t> lengths = {5, 1, 7};
  const auto found = WithCache(*model, texts, lengths, 5);
  for (int64_t row = 0; row < 3; ++row) {
    const at::Tensor expected = Evaluate(*model, texts.narrow(0, row, 1))[0];
    EXPECT_GT(expected.abs().max().item<float>(), 0.2);
    for (int64_t i = 0; i <= 5; ++i) {
      const at::Tensor whole = expected[lengths[row] + i - 1];
      EXPECT_TRUE(found[i][row].allclose(whole, /*rtol=*/0, /*atol=*/1e-5))
          << "row " << row << ", token " << i << ": "
          << found[i][row].sub(whole).abs().max().item<float>();
    }
  }
}

TEST_P(KeyValueCacheTest, WhatFillsRowsUpHasNoInfluenceOnAnyBit) {
  const auto model = Random();
  const std::vector<int64_t> lengths = {5, 1, 7};
  const auto zeros = WithCache(*model, Tokens(3, 12), lengths, 5, /*filler=*/0);
  const auto others = WithCache(*model, Tokens(3, 12), lengths, 5, /*filler=*/16);
  for (size_t i = 0; i < zeros.size(); ++i) EXPECT_TRUE(zeros[i].equal(others[i])) << i;
}

TEST_P(KeyValueCacheTest, ARowDoesNotSeeTheOthers) {
  const auto model = Random();
  const std::vector<int64_t> lengths = {5, 1, 7};
  at::Tensor texts = Tokens(3, 12);
  const auto before = WithCache(*model, texts, lengths, 5);
  texts[2].fill_(4);
  const auto after = WithCache(*model, texts, lengths, 5);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(before[i].narrow(0, 0, 2).equal(after[i].narrow(0, 0, 2))) << i;
    EXPECT_FALSE(before[i][2].allclose(after[i][2])) << i;
  }
}

TEST_P(KeyValueCacheTest, UnitsAreCalledAsInAnEvaluation) {
  const auto model = maker().Make(maker().small());
  const at::NoGradGuard no_grad;
  RecordingContext context(Mode::kEvaluate, MakeGenerator(0));
  model->Logits(Tokens(2, 3), context);
  const std::vector<std::string> expected = context.calls;
  KeyValueCache cache(std::vector<int64_t>{3, 2}, 4, at::kCPU);
  const ForwardContext::Generating generating(&context, &cache);
  for (const int64_t length : {3, 1}) {
    if (length == 1) cache.Advance();
    context.calls.clear();
    model->Logits(Tokens(2, length), context);
    EXPECT_THAT(context.calls, ElementsAreArray(expected));
  }
}

TEST_P(KeyValueCacheTest, MemoryIsThatOfTheShapeAndIsFreed) {
  memory::InstallCountingAllocator();
  const auto model = maker().Make(maker().small());
  const at::NoGradGuard no_grad;
  ForwardContext context(Mode::kEvaluate, MakeGenerator(0));
  constexpr int64_t kRows = 5, kRoom = 400;
  const auto in_use = [] { return static_cast<int64_t>(memory::MemoryInUse().total.bytes); };
  const int64_t before = in_use();
  {
    KeyValueCache cache(std::vector<int64_t>(kRows, 2), kRoom, at::kCPU);
    const ForwardContext::Generating generating(&context, &cache);
    model->Logits(Tokens(kRows, 2), context);
    cache.Advance();
    model->Logits(Tokens(kRows, 1), context);
    const int64_t kept =
        std::get<KeyValueShape>(*model->continuation()).BytesPerPosition() * kRows * kRoom;
    EXPECT_GE(in_use() - before, kept);
    EXPECT_LT(in_use() - before, kept + 500);  // lengths and positions
  }
  EXPECT_EQ(in_use(), before);
}

INSTANTIATE_TEST_SUITE_P(All, KeyValueCacheTest, ::testing::Range<size_t>(0, 5),
                         [](const auto& info) { return Variants()[info.param].name; });

TEST(KeyValueCache, ShapeIsThatOfTheHeadsOfKeysAndValues) {
  const auto shape = [](size_t variant) {
    const LanguageModelMaker& maker = Variants()[variant].maker;
    return std::get<KeyValueShape>(*maker.Make(maker.small())->continuation());
  };
  EXPECT_EQ(shape(0).BytesPerPosition(), 2 * 2 * 3 * 4 * 4);
  EXPECT_EQ(shape(2).BytesPerPosition(), 2 * 2 * 4 * 6 * 4);
  EXPECT_EQ(shape(3).BytesPerPosition(), 2 * 2 * 3 * 4 * 4);
  EXPECT_EQ(shape(4).BytesPerPosition(), 2 * 2 * 1 * 6 * 4);
}

TEST(KeyValueCache, ATokenWithoutRoomIsAnError) {
  KeyValueCache cache(std::vector<int64_t>{2, 3}, 4, at::kCPU);
  cache.Advance();
  try {
    cache.Advance();
    FAIL();
  } catch (const ModelError& error) {
    EXPECT_THAT(error.what(), HasSubstr("room for 4 positions"));
  }
}

TEST(KeyValueCache, AfterAGenerationTheContextIsWhatItWas) {
  for (const Mode mode : {Mode::kTrain, Mode::kEvaluate}) {
    ForwardContext context(mode, MakeGenerator(0));
    KeyValueCache cache(std::vector<int64_t>{1}, 1, at::kCPU);
    {
      const ForwardContext::Generating generating(&context, &cache);
      EXPECT_FALSE(context.training());
      EXPECT_EQ(context.cache(), &cache);
    }
    EXPECT_EQ(context.training(), mode == Mode::kTrain);
    EXPECT_EQ(context.cache(), nullptr);
  }
}

}  // namespace
}  // namespace muster::models
