#include "worker/models/llama_units.h"

#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/linear.h"
#include "ATen/ops/rms_norm.h"
#include "ATen/ops/silu.h"
#include "worker/models/attention.h"
#include "worker/models/init.h"
#include "worker/models/key_value_cache.h"
#include "worker/models/rotary.h"
#include "worker/models/vocabulary.h"

namespace muster::models {
namespace {

using at::Tensor;

// Root mean square norm (Zhang and Sennrich 2019), in float32 whatever the rest computes in; of the
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
  Unit* head_ = nullptr;  // embedding_ if it is tied
  size_t norm_;
};

}  // namespace

std::unique_ptr<Unit> MakeLlamaRoot(const LlamaShape& shape, uint64_t seed) {
  return std::make_unique<Root>(shape, seed);
}

}  // namespace muster::models
