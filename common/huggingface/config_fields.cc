#include "common/huggingface/config_fields.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/safetensors/strict_json.h"

namespace muster::huggingface {
namespace {

using nlohmann::json;

using safetensors::Shown;

}  // namespace

bool IsActivation(const std::string& expected, const nlohmann::json& found) {
  // The results of the other functions differ by the rounding of single operations.
  static const auto& names = *new std::map<std::string, std::set<std::string>>{
      {"gelu_new", {"gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate"}},
      {"silu", {"swish"}}};
  if (!found.is_string()) return false;
  const auto other = names.find(expected);
  return found == expected ||
         (other != names.end() && other->second.count(found.get<std::string>()) > 0);
}

const json* ConfigFields::Find(const std::string& key) {
  known_.insert(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigFields::HasNull(const std::string& key) const {
  const auto found = object_.find(key);
  return found != object_.end() && found->is_null();
}

int64_t ConfigFields::Integer(const std::string& key, std::optional<int64_t> otherwise,
                              int64_t least, int64_t most) {
  const json* found = Find(key);
  if (found == nullptr) {
    if (!otherwise.has_value()) Refuse(key, "is missing");
    return otherwise.value_or(least);
  }
  const bool fits = found->is_number_integer() &&
                    (!found->is_number_unsigned() || found->get<uint64_t>() <= INT64_MAX) &&
                    found->get<int64_t>() >= least && found->get<int64_t>() <= most;
  if (fits) return found->get<int64_t>();
  Refuse(key, absl::StrCat("expected a whole number from ", least, " to ", most, ", found ",
                           Shown(*found)));
  return otherwise.value_or(least);
}

double ConfigFields::Positive(const std::string& key, std::optional<double> otherwise) {
  const json* found = Find(key);
  if (found == nullptr) {
    if (!otherwise.has_value()) Refuse(key, "is missing");
    return otherwise.value_or(1);
  }
  const double value = found->is_number() ? found->get<double>() : 0;
  if (std::isfinite(value) && value > 0) return value;
  Refuse(key, absl::StrCat("expected a number above 0, found ", Shown(*found)));
  return otherwise.value_or(1);
}

bool ConfigFields::Flag(const std::string& key, bool otherwise) {
  const json* found = Find(key);
  if (found == nullptr) return otherwise;
  if (found->is_boolean()) return found->get<bool>();
  Refuse(key, absl::StrCat("expected true or false, found ", Shown(*found)));
  return otherwise;
}

std::string ConfigFields::Text(const std::string& key, const std::string& otherwise) {
  const json* found = Find(key);
  if (found == nullptr) return otherwise;
  if (found->is_string()) return found->get<std::string>();
  Refuse(key, absl::StrCat("expected a text, found ", Shown(*found)));
  return otherwise;
}

void ConfigFields::OneOf(const std::string& key, std::initializer_list<json> allowed) {
  const json* found = Find(key);
  if (found == nullptr) return;
  if (std::find(allowed.begin(), allowed.end(), *found) != allowed.end()) return;
  std::vector<std::string> values;
  for (const json& one : allowed) values.push_back(one.dump());
  Refuse(key, absl::StrCat("expected ", absl::StrJoin(values, " or "), ", found ", Shown(*found)));
}

void ConfigFields::Ignore(std::initializer_list<const char*> keys) {
  known_.insert(keys.begin(), keys.end());
}

void ConfigFields::ReadCommon(const std::string& architecture) {
  if (Find("quantization_config") != nullptr) {
    Refuse("quantization_config",
           "the weights are quantized; expected float32, bfloat16 or float16");
  }
  if (Find("auto_map") != nullptr) {
    Refuse("auto_map", "the model has Python code of its own, which Muster does not run");
  }
  OneOf("architectures", {json::array({architecture})});
  OneOf("partial_rotary_factor", {1});
  OneOf("pruned_heads", {json::object()});
  // With null as with false, transformers lets each position see all others.
  if (object_.contains("is_causal") && object_["is_causal"] != true) {
    Refuse("is_causal", absl::StrCat("expected true, found ", Shown(object_["is_causal"])));
  }
  Find("is_causal");
  Ignore({"model_type", "dtype", "torch_dtype", "transformers_version", "transformers.js_config",
          "use_cache", "bos_token_id", "eos_token_id", "sep_token_id", "decoder_start_token_id",
          "tokenizer_class", "pretraining_tp", "is_decoder", "is_llama_config",
          "task_specific_params", "finetuning_task", "problem_type", "id2label", "label2id",
          "return_dict", "chunk_size_feed_forward", "attn_implementation", "unsloth_fixed",
          "unsloth_version",
          // Settings of generations, which older versions wrote here.
          "do_sample", "temperature", "top_k", "top_p", "typical_p", "num_beams", "num_beam_groups",
          "num_return_sequences", "diversity_penalty", "repetition_penalty", "length_penalty",
          "encoder_no_repeat_ngram_size", "no_repeat_ngram_size", "max_length", "min_length",
          "max_new_tokens",
          // Notes of programs that train, and of former versions.
          "n_special", "predict_special_tokens", "output_past", "max_sequence_length",
          "model_max_length", "output_hidden_states", "output_attentions"});
}

int64_t ConfigFields::Context(const std::string& key, int64_t asked) {
  const int64_t positions = Integer(key, std::nullopt, 1, kMostNumbers);
  if (asked == 0) return positions;
  if (asked > positions && Find(key) != nullptr) {
    problems_->Add(absl::StrCat("model.context: expected at most ", positions, ", the ", key,
                                " of the model, found ", asked));
  }
  return asked;
}

void ConfigFields::RefuseOthers() {
  for (const auto& [key, value] : object_.items()) {
    const bool off = value.is_null() || value == json(false);
    // Names that begin with _ are transformers' own notes, such as _name_or_path.
    if (off || known_.contains(key) || absl::StartsWith(key, "_")) continue;
    Refuse(key, absl::StrCat("is not known, with the value ", Shown(value),
                             "; remove it if the model does not depend on it"));
  }
}

void ConfigFields::Refuse(const std::string& key, const std::string& why) {
  std::string shown = Shown(key);  // in quotes
  if (shown.size() == key.size() + 2) shown = key;
  problems_->Add(absl::StrCat(path_, shown, ": ", why));
}

}  // namespace muster::huggingface
