// Tests of every language model.
#include "worker/models/language/language_model.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/models/language/language_model_maker.h"
#include "worker/models/recording_context.h"

namespace muster::models {
namespace {

using ::testing::ElementsAre;

struct Kind {
  LanguageModelMaker maker;
  std::string layers;     // the name of these units, without the number
  std::string embedding;  // the name of the unit
  // Keys of config.json with values of other models, and the resulting error.
  std::vector<std::pair<nlohmann::json, std::string>> others;
};

const Kind& Gpt2() {
  static const auto& kind = *new Kind{
      {"gpt2", {{"vocab_size", 17}, {"context", 6}, {"layers", 2}, {"heads", 2}, {"width", 8}}},
      "transformer.h.",
      "transformer.wte",
      {{{{"model_type", "llama"}}, R"(model_type: expected "gpt2", found "llama")"},
       {{{"n_head", 4}}, "n_head: expected 2, found 4"},
       {{{"activation_function", "relu"}},
        R"(activation_function: expected "gelu_new", found "relu")"},
       {{{"layer_norm_epsilon", 1e-6}}, "layer_norm_epsilon: expected 1e-05, found 1e-06"},
       {{{"scale_attn_weights", false}}, "scale_attn_weights: expected true, found false"},
       {{{"scale_attn_by_inverse_layer_idx", true}},
        "scale_attn_by_inverse_layer_idx: expected false, found true"}}};
  return kind;
}

const Kind& Llama() {
  static const auto& kind =
      *new Kind{{"llama",
                 {{"vocab_size", 17},
                  {"context", 6},
                  {"layers", 2},
                  {"heads", 4},
                  {"kv_heads", 2},
                  {"width", 8},
                  {"inner", 12}}},
                "model.layers.",
                "model.embed_tokens",
                {{{{"model_type", "gemma"}}, R"(model_type: expected "llama", found "gemma")"},
                 {{{"hidden_act", "gelu"}}, R"(hidden_act: expected "silu", found "gelu")"},
                 {{{"num_attention_heads", 2}}, "num_attention_heads: expected 4, found 2"},
                 {{{"num_key_value_heads", 4}}, "num_key_value_heads: expected 2, found 4"},
                 {{{"head_dim", 4}}, "head_dim: expected 2, found 4"},
                 {{{"rms_norm_eps", 1e-6}}, "rms_norm_eps: expected 1e-05, found 1e-06"},
                 {{{"rope_theta", 5e5}}, "rope_theta: expected 10000.0, found 500000.0"},
                 {{{"rope_parameters", {{"rope_theta", 5e5}}}},
                  "rope_parameters.rope_theta: expected 10000.0, found 500000.0"},
                 {{{"rope_parameters", {{"rope_type", "llama3"}}}},
                  R"(rope_parameters.rope_type: expected "default", found "llama3")"},
                 {{{"rope_scaling", {{"rope_type", "yarn"}}}},
                  R"(rope_scaling.rope_type: expected "default", found "yarn")"},
                 {{{"rope_scaling", {{"type", "linear"}}}},
                  R"(rope_scaling.type: expected "default", found "linear")"}}};
  return kind;
}

TEST(LanguageModel, OtherNamesOfItsActivationAreItsOwn) {
  const auto gpt2 = Gpt2().maker.Make(Gpt2().maker.small());
  for (const char* name : {"gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast"}) {
    const nlohmann::json config = {{"model_type", "gpt2"}, {"activation_function", name}};
    EXPECT_TRUE(gpt2->CheckHuggingFaceConfig(config.dump()).ok()) << name;
  }
  const auto llama = Llama().maker.Make(Llama().maker.small());
  EXPECT_TRUE(llama->CheckHuggingFaceConfig(R"({"hidden_act": "swish"})").ok());
  EXPECT_FALSE(gpt2->CheckHuggingFaceConfig(R"({"activation_function": "gelu"})").ok());
}

class LanguageModelTest : public ::testing::TestWithParam<const Kind*> {
 protected:
  const LanguageModelMaker& maker() const { return GetParam()->maker; }
  std::unique_ptr<Model> Small() const { return maker().Make(maker().small()); }
};

TEST_P(LanguageModelTest, LogitsDoNotSeeTheFuture) {
  const auto model = Small();
  const at::Tensor tokens = Tokens(2, 6);
  at::Tensor changed = tokens.clone();
  changed.select(1, 4).fill_(1);
  const at::Tensor before = Evaluate(*model, tokens), after = Evaluate(*model, changed);
  EXPECT_EQ(before.sizes(), (at::IntArrayRef{2, 6, 17}));
  EXPECT_TRUE(before.narrow(1, 0, 4).equal(after.narrow(1, 0, 4)));
  EXPECT_FALSE(before.narrow(1, 4, 2).allclose(after.narrow(1, 4, 2)));
}

TEST_P(LanguageModelTest, LossReachesEveryParameter) {
  for (const bool tied : {false, true}) {
    const auto model = maker().Make(maker().With("tied", tied));
    ForwardContext context(Mode::kTrain, MakeGenerator(0));
    const LossOutput loss = model->Loss({Tokens(3, 6), Tokens(3, 6).roll(1, 1)}, context);
    EXPECT_EQ(loss.terms, 18);
    loss.mean_loss.backward();
    for (const Parameter& parameter : model->Parameters()) {
      ASSERT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
      EXPECT_GT(parameter.tensor.grad().abs().sum().item<float>(), 0) << parameter.name;
    }
  }
}

TEST_P(LanguageModelTest, DocumentsInOneRowAreAsEachByItself) {
  const auto model = Small();
  FollowTheText(*model);
  const at::Tensor tokens = Tokens(2, 6);
  // Documents of 1, 3 and 2 tokens, and of 4 and 2.
  const at::Tensor positions =
      at::tensor({0, 0, 1, 2, 0, 1, 0, 1, 2, 3, 0, 1}, at::kLong).view({2, 6});
  const at::Tensor targets = tokens.roll(1, 1);
  const auto gradients = [&] {
    std::vector<at::Tensor> all;
    for (const Parameter& parameter : model->Parameters()) {
      all.push_back(parameter.tensor.grad().clone());
      parameter.tensor.mutable_grad().reset();
    }
    return all;
  };
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  const Batch packed = {.inputs = tokens, .targets = targets, .further = {positions}};
  ASSERT_EQ(model->CheckBatch(packed), absl::OkStatus());
  const at::Tensor logits = model->Logits(packed, context);
  at::Tensor loss = model->Loss(packed, context).mean_loss.mul(12);
  loss.backward();
  const std::vector<at::Tensor> together = gradients();

  at::Tensor sum = at::zeros({});
  for (const auto& [row, begin, length] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {0, 0, 1}, {0, 1, 3}, {0, 4, 2}, {1, 0, 4}, {1, 4, 2}}) {
    const auto part = [&, row = row, begin = begin, length = length](const at::Tensor& x) {
      return x.narrow(0, row, 1).narrow(1, begin, length);
    };
    const Batch alone = {.inputs = part(tokens), .targets = part(targets)};
    EXPECT_TRUE(model->Logits(alone, context).allclose(part(logits), 0, 1e-6));
    sum = sum.add(model->Loss(alone, context).mean_loss.mul(length));
  }
  EXPECT_NEAR(sum.item<double>(), loss.item<double>(), 1e-5);
  sum.backward();
  const std::vector<at::Tensor> apart = gradients();
  for (size_t i = 0; i < apart.size(); ++i) {
    EXPECT_TRUE(apart[i].allclose(together[i], 1e-5, 1e-5)) << model->Parameters()[i].name;
  }
}

TEST_P(LanguageModelTest, ABatchWithOtherPositionsIsRefused) {
  const auto model = Small();
  const at::Tensor tokens = Tokens(2, 6);
  EXPECT_FALSE(model->CheckBatch({tokens, tokens, {}, {Tokens(2, 5)}}).ok());
  EXPECT_FALSE(model->CheckBatch({tokens, tokens, {}, {tokens, tokens}}).ok());
}

TEST_P(LanguageModelTest, EveryUnitIsCalledThroughTheContext) {
  const auto& [name, layers, embedding, others] = *GetParam();
  for (const bool tied : {false, true}) {
    RecordingContext context(Mode::kEvaluate, MakeGenerator(0));
    maker().Make(maker().With("tied", tied))->Logits(Tokens(1, 6), context);
    EXPECT_THAT(context.calls, ElementsAre("", embedding, layers + "0", layers + "1",
                                           tied ? embedding : "lm_head"));
  }
}

TEST_P(LanguageModelTest, ItsOwnConfigIsOfItsWeights) {
  const auto model = Small();
  EXPECT_EQ(model->CheckHuggingFaceConfig(model->HuggingFaceConfig()), absl::OkStatus());
  // Missing keys and null are no difference. Numbers may have been rounded to float32.
  EXPECT_EQ(model->CheckHuggingFaceConfig("{}"), absl::OkStatus());
  auto config = nlohmann::json::parse(model->HuggingFaceConfig());
  for (const char* key : {"rms_norm_eps", "layer_norm_epsilon"}) {
    if (config.contains(key)) config[key] = static_cast<double>(config[key].get<float>());
  }
  config["rope_scaling"] = nullptr;
  EXPECT_EQ(model->CheckHuggingFaceConfig(config.dump()), absl::OkStatus());
}

TEST_P(LanguageModelTest, AConfigOfOtherWeightsIsRefused) {
  const auto model = Small();
  for (const auto& [other, said] : GetParam()->others) {
    auto config = nlohmann::json::parse(model->HuggingFaceConfig());
    config.merge_patch(other);
    const absl::Status status = model->CheckHuggingFaceConfig(config.dump());
    EXPECT_EQ(status, absl::InvalidArgumentError("describes another model than " + maker().kind() +
                                                 " with these options: " + said));
  }
  EXPECT_EQ(model->CheckHuggingFaceConfig("[]"),
            absl::InvalidArgumentError("expected a JSON object"));
  EXPECT_EQ(model->CheckHuggingFaceConfig("{"),
            absl::InvalidArgumentError("expected a JSON object"));
}

INSTANTIATE_TEST_SUITE_P(All, LanguageModelTest, ::testing::Values(&Gpt2(), &Llama()),
                         [](const auto& info) { return info.param->maker.kind(); });

}  // namespace
}  // namespace muster::models
