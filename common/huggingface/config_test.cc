#include "common/huggingface/config.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::huggingface {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// A Llama with the fewest keys.
json Small() {
  return {{"model_type", "llama"},    {"vocab_size", 32},
          {"hidden_size", 8},         {"intermediate_size", 12},
          {"num_hidden_layers", 2},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 64}};
}

json With(json config, const json& changes) {
  config.merge_patch(changes);
  return config;
}

json Without(json config, const char* key) {
  config.erase(key);
  return config;
}

DecoderShape Decoder(const json& config, int64_t context = 0) {
  const auto shape = ReadConfig(config, context);
  EXPECT_TRUE(shape.ok()) << shape.status();
  return shape.ok() ? std::get<DecoderShape>(*shape) : DecoderShape();
}

std::vector<std::optional<int64_t>> Windows(const DecoderShape& shape) {
  std::vector<std::optional<int64_t>> windows;
  for (const DecoderLayer& layer : shape.layers) windows.push_back(layer.window);
  return windows;
}

const std::optional<int64_t> kAll = std::nullopt;

TEST(HuggingFaceConfig, AbsentKeysHaveTheDefaultsOfTransformers) {
  const DecoderShape llama = Decoder(Without(Small(), "num_key_value_heads"));
  EXPECT_EQ(llama.vocab_size, 32);
  EXPECT_EQ(llama.context, 64);
  EXPECT_EQ(llama.layers.size(), 2);
  EXPECT_EQ(llama.kv_heads, 4);
  EXPECT_EQ(llama.head, 2);
  EXPECT_EQ(llama.norm_eps, 1e-6);
  EXPECT_EQ(llama.rotary.theta, 10000);
  EXPECT_FALSE(llama.tied || llama.qkv_bias || llama.o_bias || llama.mlp_bias || llama.qk_norm);
  EXPECT_FALSE(llama.padding.has_value());
  EXPECT_EQ(Decoder(With(Small(), {{"model_type", "qwen3"}})).head, 128);
  const DecoderShape smollm3 =
      Decoder(With(Small(), {{"model_type", "smollm3"}, {"pad_token_id", 0}}));
  EXPECT_TRUE(smollm3.tied);
  EXPECT_EQ(smollm3.rotary.theta, 2000000);
}

TEST(HuggingFaceConfig, EachKindOfModelHasItsBiasesAndNorms) {
  const auto of = [](const char* type) { return Decoder(With(Small(), {{"model_type", type}})); };
  EXPECT_TRUE(of("qwen2").qkv_bias);
  EXPECT_FALSE(of("qwen2").o_bias);
  EXPECT_FALSE(of("qwen3").qkv_bias);
  EXPECT_TRUE(of("qwen3").qk_norm);
  EXPECT_FALSE(of("qwen2").qk_norm || of("mistral").qkv_bias || of("ministral").qk_norm);
  const DecoderShape biased =
      Decoder(With(Small(), {{"attention_bias", true}, {"mlp_bias", true}}));
  EXPECT_TRUE(biased.qkv_bias && biased.o_bias && biased.mlp_bias);
}

TEST(HuggingFaceConfig, LayersHaveTheWindowsOfTransformers) {
  const auto of = [](const json& changes) { return Windows(Decoder(With(Small(), changes))); };
  const std::optional<int64_t> eight = 8;
  using List = std::vector<std::optional<int64_t>>;
  EXPECT_EQ(of({{"model_type", "mistral"}}), (List{4096, 4096}));
  EXPECT_EQ(of({{"model_type", "mistral"}, {"sliding_window", 8}}), (List{eight, eight}));
  json none = With(Small(), {{"model_type", "mistral"}});
  none["sliding_window"] = nullptr;
  EXPECT_EQ(Windows(Decoder(none)), (List{kAll, kAll}));
  const json listed = {"sliding_attention", "full_attention"};
  EXPECT_EQ(of({{"model_type", "ministral"}, {"sliding_window", 8}, {"layer_types", listed}}),
            (List{eight, kAll}));
  // Of Qwen only with use_sliding_window.
  EXPECT_EQ(of({{"model_type", "qwen2"}, {"sliding_window", 8}}), (List{kAll, kAll}));
  EXPECT_EQ(of({{"model_type", "qwen2"},
                {"sliding_window", 8},
                {"use_sliding_window", true},
                {"max_window_layers", 1}}),
            (List{kAll, eight}));
  EXPECT_EQ(of({{"model_type", "qwen3"},
                {"sliding_window", 8},
                {"use_sliding_window", true},
                {"max_window_layers", 0},
                {"layer_types", listed}}),
            (List{eight, kAll}));
}

TEST(HuggingFaceConfig, SomeLayersOfSmolLm3HaveNoRotaryPositions) {
  const auto of = [](const json& changes) {
    const json four = {{"model_type", "smollm3"}, {"num_hidden_layers", 4}, {"pad_token_id", 0}};
    const DecoderShape shape = Decoder(With(With(Small(), four), changes));
    std::vector<bool> rotary;
    for (const DecoderLayer& layer : shape.layers) rotary.push_back(layer.rotary);
    return rotary;
  };
  EXPECT_EQ(of(json::object()), (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(of({{"no_rope_layer_interval", 2}}), (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(of({{"no_rope_layers", {0, 1, 1, 0}}}), (std::vector<bool>{false, true, true, false}));
}

TEST(HuggingFaceConfig, RotaryPositionsAreThoseOfOldAndNewVersions) {
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 32.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  const json changes = {{{"rope_theta", 5e5}, {"rope_scaling", llama3}},
                        {{"rope_parameters", With(llama3, {{"rope_theta", 5e5}})}}};
  for (const json& change : changes) {
    const RotaryFrequencies rotary = Decoder(With(Small(), change)).rotary;
    EXPECT_EQ(rotary.theta, 5e5);
    const auto& scaling = std::get<Llama3Scaling>(rotary.scaling);
    EXPECT_EQ(scaling.factor, 32);
    EXPECT_EQ(scaling.low_frequency, 1);
    EXPECT_EQ(scaling.high_frequency, 4);
    EXPECT_EQ(scaling.original_context, 8192);
  }
  const json linear = {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}};
  EXPECT_EQ(std::get<LinearScaling>(Decoder(With(Small(), linear)).rotary.scaling).factor, 2);
  // The model's own number of positions, not that of the job.
  const json usual = {{"rope_scaling", Without(llama3, "original_max_position_embeddings")}};
  const auto shape = Decoder(With(Small(), usual), 16);
  EXPECT_EQ(std::get<Llama3Scaling>(shape.rotary.scaling).original_context, 64);
}

TEST(HuggingFaceConfig, AShorterContextIsThatOfTheJob) {
  EXPECT_EQ(Decoder(Small(), 16).context, 16);
  EXPECT_EQ(ReadConfig(Small(), 65).status().message(),
            "model.context: expected at most 64, the max_position_embeddings of the model, found "
            "65");
}

TEST(HuggingFaceConfig, APaddingTokenBelowZeroCountsFromTheEnd) {
  EXPECT_EQ(Decoder(With(Small(), {{"pad_token_id", 3}})).padding, 3);
  EXPECT_EQ(Decoder(With(Small(), {{"pad_token_id", -1}})).padding, 31);
  const json smollm3 = With(Small(), {{"model_type", "smollm3"}, {"vocab_size", 128256}});
  EXPECT_EQ(Decoder(smollm3).padding, 128004);
}

TEST(HuggingFaceConfig, KeysWithoutEffectAreAllowed) {
  json acausal = Small();
  acausal["is_causal"] = nullptr;
  EXPECT_FALSE(ReadConfig(acausal, 0).ok()) << "transformers takes null for false";
  Decoder(With(Small(), {{"architectures", {"LlamaForCausalLM"}},
                         {"torch_dtype", "bfloat16"},
                         {"transformers_version", "4.45.0"},
                         {"_name_or_path", "somewhere"},
                         {"unsloth_fixed", true},
                         {"n_special", 0},
                         {"max_sequence_length", 2048},
                         {"pruned_heads", json::object()},
                         {"partial_rotary_factor", 1.0},
                         {"is_causal", true},
                         {"rope_interleaved", false},
                         {"eos_token_id", {1, 2}}}));
}

// Configurations that cannot be right, or that are of another model, and what is said.
TEST(HuggingFaceConfig, WhatWouldComputeSomethingElseIsRefusedByName) {
  const std::vector<std::pair<json, std::string>> cases = {
      {{{"model_type", "gemma3"}}, "model_type: expected one of gpt2, llama, mistral"},
      {{{"model_type", 7}}, "found 7"},
      {{{"architectures", {"LlamaForSequenceClassification"}}}, "architectures: expected"},
      {{{"quantization_config", {{"bits", 4}}}}, "the weights are quantized"},
      {{{"auto_map", {{"AutoModel", "x.Y"}}}}, "Python code of its own"},
      {{{"hidden_act", "gelu"}}, "hidden_act: expected silu, found \"gelu\""},
      {{{"attention_dropout", 0.1}}, "attention_dropout: expected 0"},
      {{{"embedding_multiplier", 12}}, "embedding_multiplier: is not known, with the value 12"},
      {{{"sliding_window", 8}}, "sliding_window: is not known"},
      {{{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}}},
       "rope_scaling.rope_type: expected default, linear or llama3, found \"yarn\""},
      {{{"rope_scaling", {{"type", "dynamic"}, {"factor", 4}}}}, "found \"dynamic\""},
      {{{"rope_scaling", {{"type", "linear"}}}}, "rope_scaling.factor: is missing"},
      {{{"rope_scaling", {{"type", "linear"}, {"factor", -2}}}}, "expected a number above 0"},
      {{{"rope_scaling", {{"type", "linear"}, {"factor", 2}, {"beta_fast", 3}}}},
       "rope_scaling.beta_fast: is not known"},
      {{{"rope_scaling", 7}}, "rope_scaling: expected an object"},
      {{{"rope_theta", 5e5}, {"rope_parameters", {{"rope_theta", 1e4}}}},
       "rope_theta: differs from rope_parameters"},
      {{{"rope_parameters", {{"partial_rotary_factor", 0.5}}}},
       "partial_rotary_factor: expected 1"},
      {{{"num_key_value_heads", 3}}, "expected a divisor of num_attention_heads, 4, found 3"},
      {{{"head_dim", 3}}, "head_dim: expected an even number, found 3"},
      {{{"vocab_size", 0}}, "vocab_size: expected a whole number from 1"},
      {{{"vocab_size", 1e300}}, "vocab_size: expected a whole number"},
      {{{"hidden_size", "8"}}, "hidden_size: expected a whole number"},
      {{{"num_hidden_layers", 18446744073709551615u}}, "num_hidden_layers: expected"},
      {{{"tie_word_embeddings", "yes"}}, "tie_word_embeddings: expected true or false"},
      {{{"pad_token_id", 32}}, "pad_token_id: expected a whole number from -32 to 31"},
      {{{"model_type", "smollm3"}}, "pad_token_id: is missing; expected a token, or null"},
      {{{"is_causal", false}}, "is_causal: expected true, found false"},
      {{{"num_attention_heads", 6}}, "num_attention_heads: expected a divisor of hidden_size, 8"},
      {{{"num_attention_heads", 16}}, "num_attention_heads: expected a divisor of hidden_size, 8"},
      {{{"head_dim", 16777216}}, "head_dim: expected a whole number from 1 to 4194304"},
      {{{"pruned_heads", {{"0", {1}}}}}, "pruned_heads: expected {}"},
      {{{"model_type", "qwen2"}, {"use_sliding_window", true}}, "sliding_window: is missing"},
      {{{"model_type", "qwen2"}, {"layer_types", {"full_attention"}}},
       "layer_types: expected a list with one text for each of 2 layers"},
      {{{"model_type", "qwen2"}, {"layer_types", {"full_attention", "chunked_attention"}}},
       "layer_types[1]: expected full_attention or sliding_attention, found \"chunked_attention\""},
      {{{"model_type", "qwen2"}, {"layer_types", {"full_attention", "sliding_attention"}}},
       "layer_types: found sliding_attention, but the model has no window"},
      {{{"model_type", "smollm3"}, {"pad_token_id", 0}, {"no_rope_layers", {1}}},
       "no_rope_layers: expected 0 or 1"},
  };
  for (const auto& [changes, said] : cases) {
    const auto found = ReadConfig(With(Small(), changes), 0);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument) << changes;
    EXPECT_THAT(found.status().message(), HasSubstr(said)) << changes;
  }
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "max_position_embeddings"}) {
    EXPECT_THAT(ReadConfig(Without(Small(), key), 0).status().message(),
                HasSubstr(std::string(key) + ": is missing"));
  }
  EXPECT_FALSE(ReadConfig(json::array(), 0).ok());
  EXPECT_FALSE(ReadConfig(json::object(), 0).ok());
}

json SmallGpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 32}, {"n_positions", 16}, {"n_ctx", 16},
          {"n_embd", 8},          {"n_layer", 2},     {"n_head", 2}};
}

TEST(HuggingFaceConfig, Gpt2HasTheDropoutOfItsConfiguration) {
  const auto shape = ReadConfig(SmallGpt2(), 0);
  ASSERT_TRUE(shape.ok()) << shape.status();
  const auto& spec = std::get<v1::Gpt2Spec>(*shape);
  EXPECT_EQ(spec.context(), 16);
  EXPECT_EQ(spec.inner(), 32);
  EXPECT_EQ(spec.dropout(), 0.1);
  EXPECT_TRUE(spec.tied());
  const std::vector<std::pair<json, std::string>> cases = {
      {{{"attn_pdrop", 0}}, "attn_pdrop: expected the number of resid_pdrop, 0.1, found 0"},
      {{{"resid_pdrop", 1}}, "resid_pdrop: expected a number from 0 to below 1"},
      {{{"activation_function", "relu"}}, "activation_function: expected gelu_new, found \"relu\""},
      {{{"layer_norm_epsilon", 1e-6}}, "layer_norm_epsilon: expected 1e-05"},
      {{{"scale_attn_weights", false}}, "scale_attn_weights: expected true, found false"},
      {{{"scale_attn_by_inverse_layer_idx", true}}, "is not known, with the value true"},
      {{{"n_head", 3}}, "n_head: expected a divisor of n_embd, 8, found 3"}};
  for (const auto& [changes, said] : cases) {
    EXPECT_THAT(ReadConfig(With(SmallGpt2(), changes), 0).status().message(), HasSubstr(said));
  }
}

}  // namespace
}  // namespace muster::huggingface
