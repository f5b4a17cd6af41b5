#include "worker/models/language/gpt2.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/addmm.h"
#include "ATen/ops/embedding.h"
#include "ATen/ops/empty_like.h"
#include "ATen/ops/full.h"
#include "ATen/ops/gelu.h"
#include "ATen/ops/layer_norm.h"
#include "ATen/ops/matmul.h"
#include "ATen/ops/softmax.h"
#include "ATen/ops/triu.h"
#include "ATen/ops/zeros.h"
#include "nlohmann/json.hpp"
#include "worker/models/built_in.h"
#include "worker/models/init.h"
#include "worker/models/language/attention.h"
#include "worker/models/language/key_value_cache.h"
#include "worker/models/language/language_model.h"
#include "worker/models/unit.h"

namespace muster::models {
namespace {

struct Gpt2Shape {
  int64_t vocab_size = 0;
  int64_t context = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t width = 0;
  int64_t inner = 0;
  double dropout = 0;
  bool tied = false;
};

constexpr double kGpt2LayerNormEpsilon = 1e-5;
constexpr double kGpt2InitDeviation = 0.02;

using at::Tensor;

// Inverted dropout with the rank's own generator.
Tensor Dropout(const Tensor& x, double probability, ForwardContext& context) {
  if (!context.training() || probability == 0) return x;
  const Tensor keep = at::empty_like(x.detach(), at::MemoryFormat::Contiguous)
                          .bernoulli_(1 - probability, context.generator());
  return x.mul(keep.div_(1 - probability));
}

// Hugging Face's Conv1D: x [rows, in] times weight [in, out].
Tensor Conv1D(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return at::addmm(bias, x, weight);
}

// Computes the attention of the block: q, k, v [B, H, C, D] -> [B, H, C, D]. positions: of each
// token in its document [B, C]; undefined: each row is one document.
Tensor Attention(const Unit& block, const Tensor& q, const Tensor& k, const Tensor& v,
                 const Tensor& positions, double dropout, ForwardContext& context) {
  if (context.cache() != nullptr) return context.cache()->Attend(block, q, k, v);
  if (!context.training() || dropout == 0) {
    return positions.defined() ? DocumentAttention(q, k, v, positions) : CausalAttention(q, k, v);
  }
  // The fused kernel is not used: it would draw its dropout from the process-wide generator.
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const int64_t length = q.size(2);
  const Tensor unseen =
      positions.defined()
          ? at::zeros({}, q.options()).masked_fill(SeenInDocuments(positions).logical_not(), kNever)
          : at::full({length, length}, kNever, q.options()).triu_(1);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  const Tensor scores = at::matmul(q.mul(scale), k.transpose(2, 3)).add(unseen);
  return at::matmul(Dropout(at::softmax(scores, -1), dropout, context), v);
}

class Block : public Unit {
 public:
  Block(const std::string& name, const Gpt2Shape& shape, uint64_t seed)
      : Unit(name), shape_(shape), seed_(seed) {
    const int64_t width = shape.width;
    const double residual = kGpt2InitDeviation / std::sqrt(2.0 * shape.layers);
    ln_1_ = AddNorm(".ln_1");
    attention_in_ = AddConv1D(".attn.c_attn", width, 3 * width, kGpt2InitDeviation);
    attention_out_ = AddConv1D(".attn.c_proj", width, width, residual);
    ln_2_ = AddNorm(".ln_2");
    inner_ = AddConv1D(".mlp.c_fc", width, shape.inner, kGpt2InitDeviation);
    outer_ = AddConv1D(".mlp.c_proj", shape.inner, width, residual);
  }

  // inputs: numbers [B, C, width], and positions in documents, if there are any.
  Tensors ForwardMany(const Tensors& inputs, ForwardContext& context) override {
    const Tensor& x = inputs[0];
    const Tensor positions = inputs.size() > 1 ? inputs[1] : Tensor();
    const int64_t batch = x.size(0), length = x.size(1), width = shape_.width;
    const int64_t rows = batch * length, head = width / shape_.heads;
    const auto split = [&](const Tensor& part) {
      return part.view({batch, length, shape_.heads, head}).transpose(1, 2);
    };
    const Tensor flat = x.reshape({rows, width});

    // split instead of narrow: the gradient of split is one concatenation.
    const std::vector<Tensor> qkv = Apply(attention_in_, Norm(ln_1_, flat)).split(width, 1);
    Tensor mixed = Attention(*this, split(qkv[0]), split(qkv[1]), split(qkv[2]), positions,
                             shape_.dropout, context);
    mixed = mixed.transpose(1, 2).reshape({rows, width});
    const Tensor attended =
        flat.add(Dropout(Apply(attention_out_, mixed), shape_.dropout, context));

    const Tensor hidden = at::gelu(Apply(inner_, Norm(ln_2_, attended)), "tanh");
    const Tensor out = attended.add(Dropout(Apply(outer_, hidden), shape_.dropout, context));
    return {out.view({batch, length, width})};
  }

 private:
  // Each function returns the index of the weight; the bias has the next index.
  size_t AddNorm(const std::string& part) {
    const size_t weight = AddParameter(name() + part + ".weight", ConstantInit({shape_.width}, 1));
    AddParameter(name() + part + ".bias", ConstantInit({shape_.width}, 0));
    return weight;
  }

  size_t AddConv1D(const std::string& part, int64_t in, int64_t out, double deviation) {
    const std::string weight_name = name() + part + ".weight";
    const size_t weight =
        AddParameter(weight_name, NormalInit(seed_, weight_name, {in, out}, deviation));
    AddParameter(name() + part + ".bias", ConstantInit({out}, 0));
    return weight;
  }

  Tensor Norm(size_t weight, const Tensor& x) const {
    return at::layer_norm(x, {shape_.width}, parameter(weight), parameter(weight + 1),
                          kGpt2LayerNormEpsilon);
  }

  Tensor Apply(size_t weight, const Tensor& x) const {
    return Conv1D(x, parameter(weight), parameter(weight + 1));
  }

  const Gpt2Shape shape_;
  const uint64_t seed_;
  size_t ln_1_, attention_in_, attention_out_, ln_2_, inner_, outer_;
};

// tokens int64 [B, C], C <= context, and their positions in documents [B, C], if there are any ->
// logits float32 [B, C, vocab_size]. In a generation
// (key_value_cache.h) only those of the last token of each row, [B, 1, vocab_size].
class Root : public Unit {
 public:
  Root(const Gpt2Shape& shape, uint64_t seed) : Unit(""), shape_(shape) {
    const int64_t width = shape.width;
    embedding_ = &AddVocabulary("transformer.wte", seed);
    const std::string positions = "transformer.wpe.weight";
    wpe_ = AddParameter(positions,
                        NormalInit(seed, positions, {shape.context, width}, kGpt2InitDeviation));
    for (int64_t i = 0; i < shape.layers; ++i) {
      blocks_.push_back(
          &AddChild(std::make_unique<Block>("transformer.h." + std::to_string(i), shape, seed)));
    }
    ln_f_ = AddParameter("transformer.ln_f.weight", ConstantInit({width}, 1));
    AddParameter("transformer.ln_f.bias", ConstantInit({width}, 0));
    head_ = shape.tied ? embedding_ : &AddVocabulary("lm_head", seed);
  }

  Tensors ForwardMany(const Tensors& inputs, ForwardContext& context) override {
    KeyValueCache* const cache = context.cache();
    const bool documents = inputs.size() > 1;
    const Tensor positions = cache != nullptr ? at::embedding(parameter(wpe_), cache->positions())
                             : documents      ? at::embedding(parameter(wpe_), inputs[1])
                                              : parameter(wpe_).narrow(0, 0, inputs[0].size(1));
    Tensors x = inputs;
    x[0] = Dropout(context.Call(*embedding_, inputs[0]).add(positions), shape_.dropout, context);
    for (Unit* const block : blocks_) x[0] = context.CallMany(*block, x)[0];
    if (cache != nullptr) x[0] = cache->OfLastTokens(x[0]);
    const Tensor last = at::layer_norm(x[0], {shape_.width}, parameter(ln_f_), parameter(ln_f_ + 1),
                                       kGpt2LayerNormEpsilon);
    return {context.Call(*head_, last)};
  }

 private:
  Unit& AddVocabulary(const std::string& name, uint64_t seed) {
    return AddChild(std::make_unique<Vocabulary>(name, shape_.vocab_size, shape_.width,
                                                 kGpt2InitDeviation, seed));
  }

  const Gpt2Shape shape_;
  Unit* embedding_ = nullptr;
  std::vector<Unit*> blocks_;
  Unit* head_ = nullptr;  // the same as embedding_ if tied
  size_t wpe_, ln_f_;
};

LanguageModelShape PlainShape(const Gpt2Shape& shape) {
  return {.vocab_size = shape.vocab_size,
          .context = shape.context,
          .layers = shape.layers,
          .width = shape.width,
          .queries = shape.width,
          // c_attn, attn.c_proj, c_fc and mlp.c_proj.
          .layer_matrices = 4 * shape.width * shape.width + 2 * shape.width * shape.inner,
          .kv_heads = shape.heads,
          .head = shape.width / shape.heads,
          .tied = shape.tied};
}

std::string ConfigOf(const Gpt2Shape& shape) {
  const nlohmann::ordered_json config = {
      {"architectures", {"GPT2LMHeadModel"}},
      {"model_type", "gpt2"},
      {"dtype", "float32"},
      {"vocab_size", shape.vocab_size},
      {"n_positions", shape.context},
      {"n_embd", shape.width},
      {"n_layer", shape.layers},
      {"n_head", shape.heads},
      {"n_inner", shape.inner},
      {"activation_function", "gelu_new"},
      {"resid_pdrop", shape.dropout},
      {"embd_pdrop", shape.dropout},
      {"attn_pdrop", shape.dropout},
      {"layer_norm_epsilon", kGpt2LayerNormEpsilon},
      {"initializer_range", kGpt2InitDeviation},
      {"scale_attn_weights", true},
      {"tie_word_embeddings", shape.tied},
      // Muster knows no special tokens. Those of GPT-2 would lie beyond a small vocabulary.
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
      {"use_cache", true},
  };
  return config.dump(2) + "\n";
}

std::vector<ConfigFact> FactsOf(const Gpt2Shape& shape) {
  return {{"model_type", "gpt2"},
          {"n_head", shape.heads},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", kGpt2LayerNormEpsilon},
          {"scale_attn_weights", true},
          {"scale_attn_by_inverse_layer_idx", false}};
}

class Gpt2 : public LanguageModel {
 public:
  Gpt2(ModelIdentity identity, const Gpt2Shape& shape, Positions positions, uint64_t seed)
      : LanguageModel(
            std::move(identity), std::make_unique<Root>(shape, seed), PlainShape(shape),
            // The constants are the causal masks.
            {.prefix = "transformer.",
             .embedding = "transformer.wte.weight",
             .constants = {".attn.bias", ".attn.masked_bias"},
             .positions = positions == Positions::kFewer ? "transformer.wpe.weight" : ""}) {}
};

Gpt2Shape ShapeOf(const v1::Gpt2Spec& spec) {
  return {.vocab_size = spec.vocab_size(),
          .context = spec.context(),
          .layers = spec.layers(),
          .heads = spec.heads(),
          .width = spec.width(),
          .inner = spec.inner(),
          .dropout = spec.dropout(),
          .tied = spec.tied()};
}

}  // namespace

std::unique_ptr<Model> CreateGpt2(const v1::Gpt2Spec& spec, uint64_t seed) {
  const Gpt2Shape shape = ShapeOf(spec);
  return CreateGpt2As({.kind = "gpt2", .config = ConfigOf(shape), .facts = FactsOf(shape)}, spec,
                      Positions::kFewer, seed);
}

std::unique_ptr<Model> CreateGpt2As(ModelIdentity identity, const v1::Gpt2Spec& spec,
                                    Positions positions, uint64_t seed) {
  return std::make_unique<Gpt2>(std::move(identity), ShapeOf(spec), positions, seed);
}

}  // namespace muster::models
