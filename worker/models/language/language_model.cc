#include "worker/models/language/language_model.h"

#include <cmath>
#include <map>
#include <set>

#include "ATen/ops/embedding.h"
#include "ATen/ops/linear.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/huggingface/config_fields.h"
#include "common/problems/problems.h"
#include "worker/models/init.h"
#include "worker/models/language/attention.h"

namespace muster::models {
namespace {

// Returns the value at this path; null if there is none.
nlohmann::json ValueAt(const nlohmann::json& config, const std::string& path) {
  nlohmann::json value = config;
  for (const std::string& key : std::vector<std::string>(absl::StrSplit(path, '.'))) {
    if (!value.is_object() || !value.contains(key)) return nullptr;
    value = nlohmann::json(value[key]);
  }
  return value;
}

bool Equal(const nlohmann::json& expected, const nlohmann::json& found) {
  if (expected.is_string() && huggingface::IsActivation(expected.get<std::string>(), found))
    return true;
  if (!expected.is_number_float() || !found.is_number()) return expected == found;
  // Some programs write the number rounded to float32.
  const double a = expected.get<double>(), b = found.get<double>();
  return std::abs(a - b) <= 1e-6 * std::abs(a);
}

constexpr char kOutputLayer[] = "lm_head.weight";

bool IsTokens(const at::Tensor& x) { return x.scalar_type() == at::kLong; }

}  // namespace

LanguageModel::LanguageModel(ModelIdentity identity, std::unique_ptr<Unit> root,
                             const LanguageModelShape& shape, LanguageModelNames names)
    : Model(identity.kind, std::move(root)),
      identity_(std::move(identity)),
      shape_(shape),
      names_(std::move(names)) {
  for (const Parameter& parameter : Parameters()) parameters_.insert(parameter.name);
}

std::string LanguageModel::name() const {
  return identity_.name.empty() ? Model::name() : identity_.name;
}

InputSpec LanguageModel::UnitsInput() const {
  return {.kind = InputSpec::Kind::kTokens,
          .vocab_size = shape_.vocab_size,
          .context = shape_.context,
          .documents = true};
}

double LanguageModel::ForwardFlops() const {
  const auto context = static_cast<double>(shape_.context);
  const double layer = 2 * context * static_cast<double>(shape_.layer_matrices) +
                       AttentionFlops(shape_.context, shape_.queries);
  const double head =
      2 * context * static_cast<double>(shape_.width) * static_cast<double>(shape_.vocab_size);
  return static_cast<double>(shape_.layers) * layer + head;
}

std::optional<Continuation> LanguageModel::continuation() const {
  return KeyValueShape{.layers = shape_.layers, .heads = shape_.kv_heads, .head = shape_.head};
}

WeightName LanguageModel::ResolveWeight(const std::string& name) const {
  for (const std::string& full : {name, names_.prefix + name}) {
    if (!Has(full)) continue;
    const bool vocabulary = full == names_.embedding || full == kOutputLayer;
    return {WeightName::Kind::kParameter, full, full == names_.positions, vocabulary};
  }
  if (shape_.tied && name == kOutputLayer) {
    return {
        .kind = WeightName::Kind::kParameter, .parameter = names_.embedding, .vocabulary = true};
  }
  for (const std::string& constant : names_.constants) {
    if (absl::EndsWith(name, constant)) return {WeightName::Kind::kIgnored, ""};
  }
  return {};
}

absl::Status LanguageModel::CheckHuggingFaceConfig(const std::string& text) const {
  const auto config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return absl::InvalidArgumentError("expected a JSON object");
  Problems problems;
  for (const auto& [key, expected] : identity_.facts) {
    const nlohmann::json found = ValueAt(config, key);
    if (found.is_null() || Equal(expected, found)) continue;
    problems.Add(absl::StrCat(key, ": expected ", expected.dump(), ", found ", found.dump()));
  }
  return problems.ToStatus(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat("describes another model than ", kind(), " with these options"));
}

Vocabulary::Vocabulary(const std::string& name, int64_t tokens, int64_t width, double deviation,
                       uint64_t seed, std::optional<int64_t> padding)
    : Unit(name), padding_(padding) {
  const std::string weight = name + ".weight";
  AddParameter(weight, NormalInit(seed, weight, {tokens, width}, deviation));
}

at::Tensor Vocabulary::Forward(const at::Tensor& x, ForwardContext&) {
  if (!IsTokens(x)) return at::linear(x, parameter(0));
  return at::embedding(parameter(0), x, padding_.value_or(-1));
}

bool Vocabulary::BackwardReadsParameters(const Tensors& inputs) const {
  return !IsTokens(inputs[0]);
}

}  // namespace muster::models
