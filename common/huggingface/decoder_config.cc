#include "common/huggingface/decoder_config.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/huggingface/config_fields.h"
#include "common/safetensors/strict_json.h"

namespace muster::huggingface {
namespace {

using nlohmann::json;
using safetensors::Shown;

// What differs between the models that are a decoder.
struct Family {
  const char* model_type;
  const char* architecture;
  // The properties that the model always has.
  bool qkv_bias = false;
  bool qk_norm = false;
  // The keys that the configuration of transformers knows.
  bool reads_attention_bias = false;  // attention_bias: of q, k, v and o
  bool reads_mlp_bias = false;
  enum class Windows {
    kNone,       // no layer has a window
    kAllLayers,  // sliding_window, in every layer
    kListed,     // sliding_window, in the layers that layer_types lists; without a list in all
    kSwitched,   // as kListed, but only with use_sliding_window; without a list from
                 // max_window_layers on
  };
  Windows windows = Windows::kNone;
  bool reads_no_rope_layers = false;
  // Defaults.
  std::optional<int64_t> head;      // absent: hidden_size / num_attention_heads
  std::optional<int64_t> kv_heads;  // absent: num_attention_heads
  double theta = 10000;
  bool tied = false;
  std::optional<int64_t> padding;  // pad_token_id
};

using Windows = Family::Windows;

constexpr Family kFamilies[] = {
    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .reads_attention_bias = true,
     .reads_mlp_bias = true},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .windows = Windows::kAllLayers,
     .kv_heads = 8},
    {.model_type = "ministral",
     .architecture = "MinistralForCausalLM",
     .windows = Windows::kListed,
     .kv_heads = 8},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .qkv_bias = true,
     .windows = Windows::kSwitched,
     .kv_heads = 32},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .qk_norm = true,
     .reads_attention_bias = true,
     .windows = Windows::kSwitched,
     .head = 128,
     .kv_heads = 32},
    {.model_type = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .reads_attention_bias = true,
     .reads_mlp_bias = true,
     .windows = Windows::kSwitched,
     .reads_no_rope_layers = true,
     .kv_heads = 4,
     .theta = 2000000,
     .tied = true,
     .padding = 128004},
};

// ---- Rotary positions.

// Checks the numbers of Llama 3, which the smooth part divides by.
RotaryFrequencies Llama3Of(double theta, int64_t positions, ConfigFields* fields) {
  Llama3Scaling scaling;
  scaling.factor = fields->Positive("factor", std::nullopt);
  scaling.low_frequency = fields->Positive("low_freq_factor", std::nullopt);
  scaling.high_frequency = fields->Positive("high_freq_factor", std::nullopt);
  scaling.original_context =
      fields->Positive("original_max_position_embeddings", static_cast<double>(positions));
  if (scaling.high_frequency <= scaling.low_frequency) {
    fields->Refuse("high_freq_factor", "expected a number above low_freq_factor");
  }
  return {theta, scaling};
}

// Reads rope_parameters (transformers 5 and later), or rope_theta and rope_scaling.
RotaryFrequencies RotaryOf(ConfigFields* fields, double usual_theta, Problems* problems) {
  const double outer = fields->Positive("rope_theta", usual_theta);
  const bool has_outer = fields->Find("rope_theta") != nullptr;
  const json* older = fields->Find("rope_scaling");
  const json* newer = fields->Find("rope_parameters");
  const json* found = newer != nullptr ? newer : older;
  if (found == nullptr) return {outer, {}};
  const std::string key = newer != nullptr ? "rope_parameters" : "rope_scaling";
  if (!found->is_object()) {
    fields->Refuse(key, "expected an object");
    return {outer, {}};
  }
  if (newer != nullptr && older != nullptr && *older != *newer) {
    fields->Refuse("rope_scaling", "differs from rope_parameters; expected one of them");
  }
  ConfigFields rope(*found, key + ".", problems);
  const double theta = rope.Positive("rope_theta", outer);
  if (has_outer && theta != outer) fields->Refuse("rope_theta", "differs from rope_parameters");
  const std::string type = rope.Text("rope_type", rope.Text("type", "default"));
  RotaryFrequencies frequencies{theta, {}};
  if (type == "linear") {
    frequencies.scaling = LinearScaling{rope.Positive("factor", std::nullopt)};
  } else if (type == "llama3") {
    frequencies = Llama3Of(theta, fields->Context("max_position_embeddings", 0), &rope);
  } else if (type != "default") {
    rope.Refuse("rope_type",
                absl::StrCat("expected default, linear or llama3, found ", Shown(type)));
    return frequencies;
  }
  rope.OneOf("partial_rotary_factor", {1});
  if (type != "llama3") rope.Ignore({"original_max_position_embeddings"});
  rope.RefuseOthers();
  return frequencies;
}

// ---- Layers.

// Reads layer_types: whether each layer has a window. Absent: nullopt.
std::optional<std::vector<bool>> ListedWindows(ConfigFields* fields, size_t layers) {
  const json* found = fields->Find("layer_types");
  if (found == nullptr) return std::nullopt;
  std::vector<bool> windows(layers);
  if (!found->is_array() || found->size() != layers) {
    fields->Refuse("layer_types",
                   absl::StrCat("expected a list with one text for each of ", layers, " layers"));
    return windows;
  }
  for (size_t i = 0; i < layers; ++i) {
    const json& one = (*found)[i];
    windows[i] = one == "sliding_attention";
    if (windows[i] || one == "full_attention") continue;
    fields->Refuse(
        absl::StrCat("layer_types[", i, "]"),
        absl::StrCat("expected full_attention or sliding_attention, found ", Shown(one)));
  }
  return windows;
}

// Reads the size of the windows; nullopt: no layer has one.
std::optional<int64_t> WindowOf(const Family& family, ConfigFields* fields) {
  const bool switched = family.windows == Windows::kSwitched;
  const bool off = switched && !fields->Flag("use_sliding_window", false);
  // An absent key of Mistral has a value in transformers; null means that there is no window.
  const auto usual = switched && !off ? std::nullopt : std::optional<int64_t>(4096);
  const int64_t window = fields->HasNull("sliding_window")
                             ? 0
                             : fields->Integer("sliding_window", usual, 1, INT32_MAX);
  fields->Ignore({"sliding_window"});
  return off || window == 0 ? std::nullopt : std::optional<int64_t>(window);
}

void SetWindows(const Family& family, ConfigFields* fields, std::vector<DecoderLayer>* layers) {
  if (family.windows == Windows::kNone) return;
  const std::optional<int64_t> window = WindowOf(family, fields);
  std::vector<bool> windows(layers->size(), window.has_value());
  const auto listed =
      family.windows == Windows::kAllLayers ? std::nullopt : ListedWindows(fields, layers->size());
  if (family.windows == Windows::kSwitched) {
    const int64_t first = fields->Integer("max_window_layers", 28, 0, INT32_MAX);
    const auto none = std::min<size_t>(static_cast<size_t>(first), windows.size());
    std::fill_n(windows.begin(), none, false);
  }
  if (listed.has_value()) {
    windows = *listed;
    if (std::find(windows.begin(), windows.end(), true) != windows.end() && !window.has_value()) {
      fields->Refuse("layer_types", "found sliding_attention, but the model has no window");
    }
  } else if (family.reads_no_rope_layers && window.has_value()) {
    fields->Refuse("layer_types", "is missing, but the model has a sliding window");
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    if (windows[i]) (*layers)[i].window = window;
  }
}

// Reads which layers of SmolLM 3 have no rotary positions.
void SetRotary(ConfigFields* fields, std::vector<DecoderLayer>* layers) {
  const int64_t interval = fields->Integer("no_rope_layer_interval", 4, 1, INT32_MAX);
  const json* found = fields->Find("no_rope_layers");
  if (found == nullptr) {
    for (size_t i = 0; i < layers->size(); ++i) {
      (*layers)[i].rotary = static_cast<int64_t>(i + 1) % interval != 0;
    }
    return;
  }
  const bool fits = found->is_array() && found->size() >= layers->size() &&
                    std::all_of(found->begin(), found->end(),
                                [](const json& one) { return one == 0 || one == 1; });
  if (!fits) {
    return fields->Refuse("no_rope_layers",
                          absl::StrCat("expected 0 or 1 for each of ", layers->size(), " layers"));
  }
  for (size_t i = 0; i < layers->size(); ++i) (*layers)[i].rotary = (*found)[i] == 1;
}

// Reads pad_token_id; nullopt: none. As an index of torch, a number below 0 counts from the end.
std::optional<int64_t> PaddingOf(const Family& family, ConfigFields* fields, int64_t tokens) {
  if (fields->Find("pad_token_id") == nullptr) {
    if (fields->HasNull("pad_token_id") || !family.padding.has_value()) return std::nullopt;
    if (*family.padding < tokens) return family.padding;
    fields->Refuse("pad_token_id", "is missing; expected a token, or null");
    return std::nullopt;
  }
  const int64_t found = fields->Integer("pad_token_id", 0, -tokens, tokens - 1);
  return found < 0 ? found + tokens : found;
}

// Reads head_dim, whose default is a part of hidden_size.
int64_t HeadOf(const Family& family, ConfigFields* fields, const DecoderShape& shape) {
  if (fields->Find("head_dim") == nullptr && !family.head.has_value() &&
      shape.width % shape.heads != 0) {
    fields->Refuse("num_attention_heads", absl::StrCat("expected a divisor of hidden_size, ",
                                                       shape.width, ", found ", shape.heads));
  }
  const int64_t usual = std::max<int64_t>(1, shape.width / shape.heads);
  const int64_t head =
      fields->Integer("head_dim", family.head.value_or(usual), 1, kMostNumbers / shape.heads);
  if (head % 2 != 0) {
    fields->Refuse("head_dim", absl::StrCat("expected an even number, found ", head));
  }
  return head;
}

DecoderShape ReadDecoder(const Family& family, const json& config, int64_t context,
                         Problems* problems) {
  ConfigFields fields(config, "", problems);
  DecoderShape shape;
  shape.vocab_size = fields.Integer("vocab_size", std::nullopt, 1, kMostTokens);
  shape.width = fields.Integer("hidden_size", std::nullopt, 1, kMostNumbers);
  shape.inner = fields.Integer("intermediate_size", std::nullopt, 1, kMostInner);
  shape.layers.resize(
      static_cast<size_t>(fields.Integer("num_hidden_layers", std::nullopt, 1, kMostLayers)));
  shape.heads = fields.Integer("num_attention_heads", std::nullopt, 1, kMostNumbers);
  const bool no_kv_heads = fields.HasNull("num_key_value_heads") || !family.kv_heads.has_value();
  shape.kv_heads = fields.Integer("num_key_value_heads",
                                  no_kv_heads ? shape.heads : *family.kv_heads, 1, kMostNumbers);
  shape.head = HeadOf(family, &fields, shape);
  shape.context = fields.Context("max_position_embeddings", context);
  shape.norm_eps = fields.Positive("rms_norm_eps", 1e-6);
  shape.rotary = RotaryOf(&fields, family.theta, problems);
  shape.tied = fields.Flag("tie_word_embeddings", family.tied);
  const bool bias = family.reads_attention_bias && fields.Flag("attention_bias", false);
  shape.qkv_bias = family.qkv_bias || bias;
  shape.o_bias = bias;
  shape.mlp_bias = family.reads_mlp_bias && fields.Flag("mlp_bias", false);
  shape.qk_norm = family.qk_norm;
  shape.deviation = fields.Positive("initializer_range", 0.02);
  shape.padding = PaddingOf(family, &fields, shape.vocab_size);
  SetWindows(family, &fields, &shape.layers);
  if (family.reads_no_rope_layers) SetRotary(&fields, &shape.layers);
  if (const json* activation = fields.Find("hidden_act");
      activation != nullptr && !IsActivation("silu", *activation)) {
    fields.Refuse("hidden_act", absl::StrCat("expected silu, found ", Shown(*activation)));
  }
  fields.OneOf("attention_dropout", {0});
  fields.ReadCommon(family.architecture);
  fields.RefuseOthers();
  if (shape.heads % shape.kv_heads != 0) {
    fields.Refuse("num_key_value_heads", absl::StrCat("expected a divisor of num_attention_heads, ",
                                                      shape.heads, ", found ", shape.kv_heads));
  }
  return shape;
}

}  // namespace

std::vector<std::string> DecoderTypes() {
  std::vector<std::string> types;
  for (const Family& family : kFamilies) types.push_back(family.model_type);
  return types;
}

std::optional<DecoderShape> ReadDecoderConfig(const std::string& type, const json& config,
                                              int64_t context, Problems* problems) {
  for (const Family& family : kFamilies) {
    if (type == family.model_type) return ReadDecoder(family, config, context, problems);
  }
  return std::nullopt;
}

}  // namespace muster::huggingface
