// Llama (Touvron et al. 2023) with names, layouts and initialisation of Hugging Face's
// LlamaForCausalLM, without biases, dropout and scaled rotary positions.
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/linear.h"
#include "ATen/ops/rms_norm.h"
#include "ATen/ops/silu.h"
#include "absl/strings/match.h"
#include "nlohmann/json.hpp"
#include "worker/models/language/attention.h"
#include "worker/models/built_in.h"
#include "worker/models/init.h"
#include "worker/models/language/key_value_cache.h"
#include "worker/models/language/language_model.h"
#include "worker/models/unit.h"

namespace muster::models {
namespace {

struct LlamaShape {
  int64_t vocab_size = 0;
  int64_t context = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t width = 0;
  int64_t inner = 0;
  double rope_theta = 0;
  double norm_eps = 0;
  bool tied = false;

  int64_t head() const { return width / heads; }
  int64_t kv_width() const { return kv_heads * head(); }
};

constexpr double kLlamaInitDeviation = 0.02;

using at::Tensor;

// Root mean square norm (Zhang and Sennrich 2019). Always computes in float32; the result has the
// weight's type.
Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps) {
  return at::rms_norm(x.to(at::kFloat), {x.size(-1)}, weight.to(at::kFloat), eps)
      .to(weight.scalar_type());
}

class Layer : public Unit {
 public:
  Layer(const std::string& name, const LlamaShape& shape, std::shared_ptr<Rotary> rotary,
        uint64_t seed)
      : Unit(name), shape_(shape), rotary_(std::move(rotary)), seed_(seed) {
    const int64_t width = shape.width;
    input_norm_ = AddNorm(".input_layernorm.weight");
    q_ = AddLinear(".self_attn.q_proj.weight", width, width);
    k_ = AddLinear(".self_attn.k_proj.weight", width, shape.kv_width());
    v_ = AddLinear(".self_attn.v_proj.weight", width, shape.kv_width());
    o_ = AddLinear(".self_attn.o_proj.weight", width, width);
    post_attention_norm_ = AddNorm(".post_attention_layernorm.weight");
    gate_ = AddLinear(".mlp.gate_proj.weight", width, shape.inner);
    up_ = AddLinear(".mlp.up_proj.weight", width, shape.inner);
    down_ = AddLinear(".mlp.down_proj.weight", shape.inner, width);
  }

  Tensor Forward(const Tensor& x, ForwardContext& context) override {
    const Tensor attended =
        x.add(Attention(RmsNorm(x, parameter(input_norm_), shape_.norm_eps), context.cache()));
    return attended.add(
        FeedForward(RmsNorm(attended, parameter(post_attention_norm_), shape_.norm_eps)));
  }

 private:
  Tensor Attention(const Tensor& x, KeyValueCache* cache) const {
    // [B, C, heads * head] -> [B, C, heads, head]
    const auto split = [&](size_t weight, int64_t heads) {
      return at::linear(x, parameter(weight)).unflatten(2, {heads, shape_.head()});
    };
    const auto turn = [&](const Tensor& heads) {
      return cache == nullptr ? rotary_->Turn(heads) : rotary_->TurnAt(cache->positions(), heads);
    };
    const Tensor q = turn(split(q_, shape_.heads)).transpose(1, 2);
    const Tensor k = turn(split(k_, shape_.kv_heads)).transpose(1, 2);
    const Tensor v = split(v_, shape_.kv_heads).transpose(1, 2);
    const Tensor mixed =
        cache == nullptr ? CausalAttention(q, k, v) : cache->Attend(*this, q, k, v);
    return at::linear(mixed.transpose(1, 2).flatten(2), parameter(o_));
  }

  // SwiGLU (Shazeer 2020).
  Tensor FeedForward(const Tensor& x) const {
    const Tensor gate = at::silu(at::linear(x, parameter(gate_)));
    return at::linear(gate.mul(at::linear(x, parameter(up_))), parameter(down_));
  }

  size_t AddNorm(const std::string& part) {
    return AddParameter(name() + part, ConstantInit({shape_.width}, 1));
  }

  size_t AddLinear(const std::string& part, int64_t in, int64_t out) {
    const std::string full_name = name() + part;
    return AddParameter(full_name, NormalInit(seed_, full_name, {out, in}, kLlamaInitDeviation));
  }

  const LlamaShape shape_;
  const std::shared_ptr<Rotary> rotary_;
  const uint64_t seed_;
  size_t input_norm_, q_, k_, v_, o_, post_attention_norm_, gate_, up_, down_;
};

// tokens int64 [B, C], C <= context -> logits [B, C, vocab_size]. float32, unless autocast says
// otherwise. In a generation (key_value_cache.h) [B, 1, vocab_size]: of each row's last token.
class Root : public Unit {
 public:
  Root(const LlamaShape& shape, uint64_t seed) : Unit(""), shape_(shape) {
    embedding_ = &AddVocabulary("model.embed_tokens", seed);
    const auto rotary = std::make_shared<Rotary>(shape.context, shape.head(), shape.rope_theta);
    for (int64_t i = 0; i < shape.layers; ++i) {
      layers_.push_back(&AddChild(
          std::make_unique<Layer>("model.layers." + std::to_string(i), shape, rotary, seed)));
    }
    norm_ = AddParameter("model.norm.weight", ConstantInit({shape.width}, 1));
    head_ = shape.tied ? embedding_ : &AddVocabulary("lm_head", seed);
  }

  Tensor Forward(const Tensor& tokens, ForwardContext& context) override {
    Tensor x = context.Call(*embedding_, tokens);
    for (Unit* const layer : layers_) x = context.Call(*layer, x);
    if (context.cache() != nullptr) x = context.cache()->OfLastTokens(x);
    return context.Call(*head_, RmsNorm(x, parameter(norm_), shape_.norm_eps));
  }

 private:
  Unit& AddVocabulary(const std::string& name, uint64_t seed) {
    return AddChild(std::make_unique<Vocabulary>(name, shape_.vocab_size, shape_.width,
                                                 kLlamaInitDeviation, seed));
  }

  const LlamaShape shape_;
  Unit* embedding_ = nullptr;
  std::vector<Unit*> layers_;
  Unit* head_ = nullptr;  // the same as embedding_ if tied
  size_t norm_;
};

// Returns the numbers in q and o, k and v, gate, up and down.
int64_t LayerMatrices(const LlamaShape& shape) {
  return 2 * shape.width * shape.width + 2 * shape.width * shape.kv_width() +
         3 * shape.width * shape.inner;
}

class Llama : public LanguageModel {
 public:
  Llama(const LlamaShape& shape, uint64_t seed)
      : LanguageModel("llama", std::make_unique<Root>(shape, seed),
                      {.vocab_size = shape.vocab_size,
                       .context = shape.context,
                       .layers = shape.layers,
                       .width = shape.width,
                       .layer_matrices = LayerMatrices(shape),
                       .kv_heads = shape.kv_heads,
                       .head = shape.head(),
                       .tied = shape.tied},
                      {.prefix = "model.",
                       .embedding = "model.embed_tokens.weight",
                       .constants = {"rotary_emb.inv_freq"}}),
        shape_(shape) {}

  // Puts the two norms of each layer last, in the order of registration of Hugging Face.
  std::vector<std::string> SourceOrder() const override {
    std::vector<std::string> order;
    std::vector<std::string> norms;  // of the layer
    for (const auto& parameter : Parameters()) {
      if (absl::EndsWith(parameter.name, "layernorm.weight")) {
        norms.push_back(parameter.name);
        continue;
      }
      order.push_back(parameter.name);
      if (!absl::EndsWith(parameter.name, "down_proj.weight")) continue;
      order.insert(order.end(), norms.begin(), norms.end());
      norms.clear();
    }
    return order;
  }

  std::string HuggingFaceConfig() const override {
    const nlohmann::ordered_json config = {
        {"architectures", {"LlamaForCausalLM"}},
        {"model_type", "llama"},
        {"dtype", "float32"},
        {"vocab_size", shape_.vocab_size},
        {"max_position_embeddings", shape_.context},
        {"hidden_size", shape_.width},
        {"num_hidden_layers", shape_.layers},
        {"num_attention_heads", shape_.heads},
        {"num_key_value_heads", shape_.kv_heads},
        {"head_dim", shape_.head()},
        {"intermediate_size", shape_.inner},
        {"hidden_act", "silu"},
        {"rms_norm_eps", shape_.norm_eps},
        // The first key is for transformers before 5, the second for 5 and later.
        {"rope_theta", shape_.rope_theta},
        {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", shape_.rope_theta}}},
        {"attention_bias", false},
        {"mlp_bias", false},
        {"attention_dropout", 0.0},
        {"initializer_range", kLlamaInitDeviation},
        {"tie_word_embeddings", shape_.tied},
        // Muster knows no special tokens. Those of Llama may lie beyond a small vocabulary.
        {"bos_token_id", nullptr},
        {"eos_token_id", nullptr},
        {"use_cache", true},
    };
    return config.dump(2) + "\n";
  }

 protected:
  std::vector<ConfigFact> ConfigFacts() const override {
    return {{"model_type", "llama"},
            {"hidden_act", "silu"},
            {"num_attention_heads", shape_.heads},
            {"num_key_value_heads", shape_.kv_heads},
            {"head_dim", shape_.head()},
            {"rms_norm_eps", shape_.norm_eps},
            {"rope_theta", shape_.rope_theta},
            // rope_parameters is of transformers 5 and later, rope_scaling of earlier versions.
            {"rope_parameters.rope_theta", shape_.rope_theta},
            {"rope_parameters.rope_type", "default"},
            {"rope_scaling.rope_type", "default"},
            {"rope_scaling.type", "default"}};
  }

 private:
  const LlamaShape shape_;
};

}  // namespace

std::unique_ptr<Model> CreateLlama(const v1::LlamaSpec& spec, uint64_t seed) {
  const LlamaShape shape = {.vocab_size = spec.vocab_size(),
                            .context = spec.context(),
                            .layers = spec.layers(),
                            .heads = spec.heads(),
                            .kv_heads = spec.kv_heads(),
                            .width = spec.width(),
                            .inner = spec.inner(),
                            .rope_theta = spec.rope_theta(),
                            .norm_eps = spec.norm_eps(),
                            .tied = spec.tied()};
  return std::make_unique<Llama>(shape, seed);
}

}  // namespace muster::models
