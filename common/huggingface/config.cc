#include "common/huggingface/config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/huggingface/config_fields.h"
#include "common/huggingface/decoder_config.h"
#include "common/problems/problems.h"
#include "common/safetensors/strict_json.h"

namespace muster::huggingface {
namespace {

using nlohmann::json;
using safetensors::Shown;

constexpr char kGpt2[] = "gpt2";

v1::Gpt2Spec ReadGpt2(const json& config, int64_t context, Problems* problems) {
  ConfigFields fields(config, "", problems);
  v1::Gpt2Spec spec;
  const auto number = [&](const char* key, std::optional<int64_t> otherwise, int64_t most) {
    return static_cast<uint32_t>(fields.Integer(key, otherwise, 1, most));
  };
  spec.set_vocab_size(number("vocab_size", std::nullopt, kMostTokens));
  spec.set_layers(number("n_layer", std::nullopt, kMostLayers));
  spec.set_heads(number("n_head", std::nullopt, kMostNumbers));
  spec.set_width(number("n_embd", std::nullopt, kMostNumbers));
  spec.set_inner(number("n_inner", std::min(kMostInner, int64_t{4} * spec.width()), kMostInner));
  spec.set_context(static_cast<uint32_t>(fields.Context("n_positions", context)));
  spec.set_tied(fields.Flag("tie_word_embeddings", true));
  const json* dropout = fields.Find("resid_pdrop");
  spec.set_dropout(dropout == nullptr ? 0.1 : dropout->is_number() ? dropout->get<double>() : -1);
  if (spec.dropout() < 0 || spec.dropout() >= 1) {
    fields.Refuse("resid_pdrop", "expected a number from 0 to below 1");
  }
  for (const char* key : {"embd_pdrop", "attn_pdrop"}) {
    const json* found = fields.Find(key);
    const json value = found == nullptr ? json(0.1) : *found;
    if (value == spec.dropout()) continue;
    fields.Refuse(key, absl::StrCat("expected the number of resid_pdrop, ", spec.dropout(),
                                    ", found ", Shown(value)));
  }
  if (const json* activation = fields.Find("activation_function");
      activation != nullptr && !IsActivation("gelu_new", *activation)) {
    fields.Refuse("activation_function",
                  absl::StrCat("expected gelu_new, found ", Shown(*activation)));
  }
  if (std::abs(fields.Positive("layer_norm_epsilon", 1e-5) - 1e-5) > 1e-11) {
    fields.Refuse("layer_norm_epsilon", "expected 1e-05");
  }
  fields.OneOf("scale_attn_weights", {true});
  fields.Ignore({"n_ctx", "initializer_range", "pad_token_id", "summary_type", "summary_use_proj",
                 "summary_activation", "summary_proj_to_labels", "summary_first_dropout"});
  fields.ReadCommon("GPT2LMHeadModel");
  fields.RefuseOthers();
  if (spec.width() % spec.heads() != 0) {
    fields.Refuse("n_head", absl::StrCat("expected a divisor of n_embd, ", spec.width(), ", found ",
                                         spec.heads()));
  }
  return spec;
}

void SetVocabulary(int64_t vocab_size, ModelShape* shape) {
  if (auto* const gpt2 = std::get_if<v1::Gpt2Spec>(shape)) {
    gpt2->set_vocab_size(static_cast<uint32_t>(vocab_size));
    return;
  }
  auto& decoder = std::get<DecoderShape>(*shape);
  decoder.vocab_size = vocab_size;
  if (decoder.padding.has_value() && *decoder.padding >= vocab_size) decoder.padding.reset();
}

absl::Status UnknownType(const json& config) {
  std::vector<std::string> types = DecoderTypes();
  types.insert(types.begin(), kGpt2);
  const auto found = config.find("model_type");
  return absl::InvalidArgumentError(absl::StrCat("model_type: expected one of ",
                                                 absl::StrJoin(types, ", "), "; found ",
                                                 found == config.end() ? "none" : Shown(*found),
                                                 "; export any other model in Python "
                                                 "(docs/how-to/own-model.md)"));
}

}  // namespace

absl::StatusOr<ModelShape> ReadConfig(const json& config, int64_t context, int64_t vocab_size) {
  if (!config.is_object()) return absl::InvalidArgumentError("expected a JSON object");
  const auto found = config.find("model_type");
  const std::string type =
      found != config.end() && found->is_string() ? found->get<std::string>() : "";
  Problems problems;
  std::optional<ModelShape> shape;
  if (type == kGpt2) {
    shape = ReadGpt2(config, context, &problems);
  } else if (auto decoder = ReadDecoderConfig(type, config, context, &problems)) {
    shape = *std::move(decoder);
  }
  if (!shape.has_value()) return UnknownType(config);
  if (problems.count() > 0) return absl::InvalidArgumentError(problems.Text());
  if (vocab_size > 0) SetVocabulary(vocab_size, &*shape);
  return *std::move(shape);
}

}  // namespace muster::huggingface
