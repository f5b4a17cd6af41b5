#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker/models/language/language_model_maker.h"

namespace muster::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const LanguageModelMaker& Maker() {
  static const auto& maker = *new LanguageModelMaker("llama", {{"vocab_size", 17},
                                                               {"context", 6},
                                                               {"layers", 2},
                                                               {"heads", 4},
                                                               {"kv_heads", 2},
                                                               {"width", 8},
                                                               {"inner", 12}});
  return maker;
}
nlohmann::json Small() { return Maker().small(); }
nlohmann::json With(const std::string& key, const nlohmann::json& value) {
  return Maker().With(key, value);
}
std::unique_ptr<Model> Make(const nlohmann::json& options, uint64_t seed = 1) {
  return Maker().Make(options, seed);
}

TEST(LlamaTest, ParametersHaveHuggingFaceNamesInForwardOrder) {
  std::vector<std::string> names;
  for (const Parameter& parameter : Make(With("layers", 1))->Parameters()) {
    names.push_back(parameter.name);
  }
  EXPECT_THAT(
      names, ElementsAre(
                 "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
                 "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
                 "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.o_proj.weight",
                 "model.layers.0.post_attention_layernorm.weight",
                 "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight",
                 "model.layers.0.mlp.down_proj.weight", "model.norm.weight", "lm_head.weight"));
}

TEST(LlamaTest, TiedModelHasNoHeadOfItsOwn) {
  const auto model = Make(With("tied", true));
  EXPECT_EQ(model->Parameters().back().name, "model.norm.weight");
  EXPECT_EQ(model->Parameters().size(), Make(Small())->Parameters().size() - 1);
}

TEST(LlamaTest, KeysAndValuesHaveTheWidthOfTheirHeads) {
  const auto grouped = ByName(*Make(Small()));
  const std::string layer = "model.layers.1.";
  EXPECT_EQ(grouped.at(layer + "self_attn.q_proj.weight").sizes(), (at::IntArrayRef{8, 8}));
  EXPECT_EQ(grouped.at(layer + "self_attn.k_proj.weight").sizes(), (at::IntArrayRef{4, 8}));
  EXPECT_EQ(grouped.at(layer + "self_attn.v_proj.weight").sizes(), (at::IntArrayRef{4, 8}));
  EXPECT_EQ(grouped.at(layer + "mlp.gate_proj.weight").sizes(), (at::IntArrayRef{12, 8}));
  EXPECT_EQ(grouped.at(layer + "mlp.down_proj.weight").sizes(), (at::IntArrayRef{8, 12}));
  nlohmann::json options = Small();
  options.erase("kv_heads");
  EXPECT_EQ(ByName(*Make(options)).at(layer + "self_attn.k_proj.weight").sizes(),
            (at::IntArrayRef{8, 8}));
}

TEST(LlamaTest, InitialValuesDependOnSeedAndNameOnly) {
  const auto one = ByName(*Make(Small()));
  const auto deep = ByName(*Make(With("layers", 3)));
  const auto other = ByName(*Make(Small(), 2));
  for (const auto& [name, tensor] : one) {
    EXPECT_TRUE(tensor.requires_grad() && tensor.is_leaf() && tensor.is_contiguous()) << name;
    EXPECT_TRUE(tensor.equal(deep.at(name))) << name;
    const bool norm = name.find("norm") != std::string::npos;
    EXPECT_EQ(tensor.equal(other.at(name)), norm) << name;
    if (norm) EXPECT_TRUE(tensor.eq(1).all().item<bool>()) << name;
  }
  const auto wide = ByName(*Make({{"vocab_size", 64},
                                  {"context", 4},
                                  {"layers", 1},
                                  {"heads", 2},
                                  {"width", 64},
                                  {"inner", 64}}));
  for (const char* name : {"lm_head.weight", "model.layers.0.mlp.down_proj.weight"}) {
    EXPECT_NEAR(std::sqrt(wide.at(name).square().mean().item<double>()), 0.02, 0.002) << name;
  }
}

TEST(LlamaTest, ConsecutiveHeadsShareTheirKeysAndValues) {
  const auto grouped = Make(Small());
  const auto whole = Make(With("kv_heads", 4));
  const at::NoGradGuard no_grad;
  for (const Parameter& parameter : grouped->Parameters()) parameter.tensor.mul_(20);
  auto source = ByName(*grouped);
  for (const Parameter& parameter : whole->Parameters()) {
    at::Tensor values = source.at(parameter.name);
    if (parameter.name.find("k_proj") != std::string::npos ||
        parameter.name.find("v_proj") != std::string::npos) {
      values = values.view({2, 1, 2, 8}).expand({2, 2, 2, 8}).reshape({8, 8});
    }
    parameter.tensor.copy_(values);
  }
  EXPECT_TRUE(Evaluate(*grouped, Tokens(2, 6)).allclose(Evaluate(*whole, Tokens(2, 6))));
}

TEST(LlamaTest, FlopsAreThoseOfTheMatrixProducts) {
  // A layer: 6 positions times 2 * (8 * 8 + 2 * 4 * 8 + 8 * 8 + 3 * 12 * 8), and 2 * 2 * 6 * 6 * 8
  // for attention.
  EXPECT_EQ(Make(Small())->ForwardFlops(), 2 * (6 * 2 * 480 + 1152) + 6 * 2 * 8 * 17);
}

TEST(LlamaTest, WeightNamesOfOtherWritersAreUnderstood) {
  const auto tied = Make(With("tied", true));
  const auto untied = Make(Small());
  EXPECT_EQ(tied->ResolveWeight("layers.1.mlp.up_proj.weight").parameter,
            "model.layers.1.mlp.up_proj.weight");
  EXPECT_EQ(tied->ResolveWeight("lm_head.weight").parameter, "model.embed_tokens.weight");
  EXPECT_EQ(untied->ResolveWeight("lm_head.weight").parameter, "lm_head.weight");
  for (const char* name : {"model.layers.0.self_attn.rotary_emb.inv_freq",
                           "model.rotary_emb.inv_freq", "rotary_emb.inv_freq"}) {
    EXPECT_EQ(tied->ResolveWeight(name).kind, WeightName::Kind::kIgnored) << name;
  }
  for (const char* name : {"layers.2.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.bias"}) {
    EXPECT_EQ(tied->ResolveWeight(name).kind, WeightName::Kind::kUnknown) << name;
  }
}

TEST(LlamaTest, ConfigSaysWhatTheModelIs) {
  nlohmann::json options = With("rope_theta", 5e5);
  options["norm_eps"] = 1e-6;
  const auto config = nlohmann::json::parse(Make(options)->HuggingFaceConfig());
  EXPECT_EQ(config["model_type"], "llama");
  EXPECT_EQ(config["num_key_value_heads"], 2);
  EXPECT_EQ(config["intermediate_size"], 12);
  EXPECT_EQ(config["rope_parameters"]["rope_theta"], 5e5);
  EXPECT_EQ(config["rms_norm_eps"], 1e-6);
  EXPECT_EQ(config["tie_word_embeddings"], false);
}

}  // namespace
}  // namespace muster::models
