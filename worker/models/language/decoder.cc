#include "worker/models/language/decoder.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/linear.h"
#include "ATen/ops/rms_norm.h"
#include "ATen/ops/silu.h"
#include "worker/models/init.h"
#include "worker/models/language/attention.h"
#include "worker/models/language/key_value_cache.h"
#include "worker/models/language/rotary.h"
#include "worker/models/unit.h"

namespace muster::models {
namespace {

using at::Tensor;

// Root mean square norm (Zhang and Sennrich 2019). Always computes in float32; the result has the
// weight's type.
Tensor RmsNorm(const Tensor& x, const Tensor& weight, double eps) {
  return at::rms_norm(x.to(at::kFloat), {x.size(-1)}, weight.to(at::kFloat), eps)
      .to(weight.scalar_type());
}

class Layer : public Unit {
 public:
  Layer(const std::string& name, const DecoderShape& shape,
        const huggingface::DecoderLayer& options, std::shared_ptr<Rotary> rotary, uint64_t seed)
      : Unit(name), shape_(shape), options_(options), rotary_(std::move(rotary)), seed_(seed) {
    const int64_t width = shape.width;
    const int64_t queries = shape.heads * shape.head, shared = shape.kv_heads * shape.head;
    input_norm_ = AddNorm(".input_layernorm.weight", width);
    q_ = AddLinear(".self_attn.q_proj", width, queries, shape.qkv_bias);
    k_ = AddLinear(".self_attn.k_proj", width, shared, shape.qkv_bias);
    v_ = AddLinear(".self_attn.v_proj", width, shared, shape.qkv_bias);
    if (shape.qk_norm) {
      q_norm_ = AddNorm(".self_attn.q_norm.weight", shape.head);
      k_norm_ = AddNorm(".self_attn.k_norm.weight", shape.head);
    }
    o_ = AddLinear(".self_attn.o_proj", queries, width, shape.o_bias);
    post_attention_norm_ = AddNorm(".post_attention_layernorm.weight", width);
    gate_ = AddLinear(".mlp.gate_proj", width, shape.inner, shape.mlp_bias);
    up_ = AddLinear(".mlp.up_proj", width, shape.inner, shape.mlp_bias);
    down_ = AddLinear(".mlp.down_proj", shape.inner, width, shape.mlp_bias);
  }

  // inputs: numbers [B, C, width], and positions in documents, if there are any.
  Tensors ForwardMany(const Tensors& inputs, ForwardContext& context) override {
    const Tensor& x = inputs[0];
    const Tensor positions = inputs.size() > 1 ? inputs[1] : Tensor();
    const Tensor attended = x.add(Attention(Norm(input_norm_, x), positions, context.cache()));
    return {attended.add(FeedForward(Norm(post_attention_norm_, attended)))};
  }

 private:
  // A matrix, and its bias if it has one.
  struct Linear {
    size_t weight = 0;
    std::optional<size_t> bias;
  };

  Tensor Attention(const Tensor& x, const Tensor& positions, KeyValueCache* cache) const {
    const Tensor places = cache == nullptr ? positions : cache->positions();
    // [B, C, heads * head] -> [B, C, heads, head]
    const auto split = [&](const Linear& linear, int64_t heads) {
      return Apply(linear, x).unflatten(2, {heads, shape_.head});
    };
    const auto turn = [&](const Tensor& heads, const std::optional<size_t>& norm) {
      const Tensor normed = norm.has_value() ? Norm(*norm, heads) : heads;
      if (!options_.rotary) return normed;
      return places.defined() ? rotary_->TurnAt(places, normed) : rotary_->Turn(normed);
    };
    const Tensor q = turn(split(q_, shape_.heads), q_norm_).transpose(1, 2);
    const Tensor k = turn(split(k_, shape_.kv_heads), k_norm_).transpose(1, 2);
    const Tensor v = split(v_, shape_.kv_heads).transpose(1, 2);
    const Tensor mixed = cache != nullptr ? cache->Attend(*this, q, k, v, options_.window)
                         : positions.defined()
                             ? DocumentAttention(q, k, v, positions, options_.window)
                             : CausalAttention(q, k, v, options_.window);
    return Apply(o_, mixed.transpose(1, 2).flatten(2));
  }

  // SwiGLU (Shazeer 2020).
  Tensor FeedForward(const Tensor& x) const {
    return Apply(down_, at::silu(Apply(gate_, x)).mul(Apply(up_, x)));
  }

  Tensor Norm(size_t weight, const Tensor& x) const {
    return RmsNorm(x, parameter(weight), shape_.norm_eps);
  }

  Tensor Apply(const Linear& linear, const Tensor& x) const {
    if (!linear.bias.has_value()) return at::linear(x, parameter(linear.weight));
    return at::linear(x, parameter(linear.weight), parameter(*linear.bias));
  }

  size_t AddNorm(const std::string& part, int64_t width) {
    return AddParameter(name() + part, ConstantInit({width}, 1));
  }

  Linear AddLinear(const std::string& part, int64_t in, int64_t out, bool bias) {
    const std::string weight = name() + part + ".weight";
    Linear linear{AddParameter(weight, NormalInit(seed_, weight, {out, in}, shape_.deviation))};
    if (bias) linear.bias = AddParameter(name() + part + ".bias", ConstantInit({out}, 0));
    return linear;
  }

  const DecoderShape& shape_;  // the root's
  const huggingface::DecoderLayer options_;
  const std::shared_ptr<Rotary> rotary_;
  const uint64_t seed_;
  size_t input_norm_, post_attention_norm_;
  std::optional<size_t> q_norm_, k_norm_;
  Linear q_, k_, v_, o_, gate_, up_, down_;
};

class Root : public Unit {
 public:
  Root(const DecoderShape& shape, uint64_t seed) : Unit(""), shape_(shape) {
    embedding_ = &AddVocabulary("model.embed_tokens", seed);
    const auto rotary = std::make_shared<Rotary>(shape.context, shape.head, shape.rotary);
    for (size_t i = 0; i < shape.layers.size(); ++i) {
      layers_.push_back(&AddChild(std::make_unique<Layer>("model.layers." + std::to_string(i),
                                                          shape_, shape_.layers[i], rotary, seed)));
    }
    norm_ = AddParameter("model.norm.weight", ConstantInit({shape.width}, 1));
    head_ = shape.tied ? embedding_ : &AddVocabulary("lm_head", seed);
  }

  // inputs: tokens [B, C], and their positions in documents, if there are any.
  Tensors ForwardMany(const Tensors& inputs, ForwardContext& context) override {
    Tensors x = inputs;
    x[0] = context.Call(*embedding_, inputs[0]);
    for (Unit* const layer : layers_) x[0] = context.CallMany(*layer, x)[0];
    if (context.cache() != nullptr) x[0] = context.cache()->OfLastTokens(x[0]);
    return {context.Call(*head_, RmsNorm(x[0], parameter(norm_), shape_.norm_eps))};
  }

 private:
  Unit& AddVocabulary(const std::string& name, uint64_t seed) {
    return AddChild(std::make_unique<Vocabulary>(name, shape_.vocab_size, shape_.width,
                                                 shape_.deviation, seed, shape_.padding));
  }

  const DecoderShape shape_;
  Unit* embedding_ = nullptr;
  std::vector<Unit*> layers_;
  Unit* head_ = nullptr;  // the same as embedding_ if tied
  size_t norm_;
};

LanguageModelShape PlainShape(const DecoderShape& shape) {
  const int64_t queries = shape.heads * shape.head, shared = shape.kv_heads * shape.head;
  return {.vocab_size = shape.vocab_size,
          .context = shape.context,
          .layers = static_cast<int64_t>(shape.layers.size()),
          .width = shape.width,
          .queries = queries,
          // q and o, k and v, gate, up and down.
          .layer_matrices =
              2 * shape.width * queries + 2 * shape.width * shared + 3 * shape.width * shape.inner,
          .kv_heads = shape.kv_heads,
          .head = shape.head,
          .tied = shape.tied};
}

class Decoder : public LanguageModel {
 public:
  Decoder(const DecoderShape& shape, ModelIdentity identity, uint64_t seed)
      : LanguageModel(std::move(identity), std::make_unique<Root>(shape, seed), PlainShape(shape),
                      {.prefix = "model.",
                       .embedding = "model.embed_tokens.weight",
                       .constants = {"rotary_emb.inv_freq"}}),
        layers_(shape.layers.size()) {}

  // Hugging Face registers the norms of the heads after o_proj, and the norms of a layer last.
  std::vector<std::string> SourceOrder() const override {
    constexpr const char* kModules[] = {
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",        "self_attn.o_proj",
        "self_attn.q_norm", "self_attn.k_norm", "mlp.gate_proj",           "mlp.up_proj",
        "mlp.down_proj",    "input_layernorm",  "post_attention_layernorm"};
    std::vector<std::string> order;
    const auto add = [&](const std::string& module) {
      for (const char* part : {".weight", ".bias"}) {
        if (Has(module + part)) order.push_back(module + part);
      }
    };
    add("model.embed_tokens");
    for (size_t i = 0; i < layers_; ++i) {
      for (const char* module : kModules) add("model.layers." + std::to_string(i) + "." + module);
    }
    add("model.norm");
    add("lm_head");
    return order;
  }

 private:
  const size_t layers_;
};

}  // namespace

std::unique_ptr<Model> CreateDecoder(const DecoderShape& shape, ModelIdentity identity,
                                     uint64_t seed) {
  return std::make_unique<Decoder>(shape, std::move(identity), seed);
}

}  // namespace muster::models
