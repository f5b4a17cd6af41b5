// Small language models for tests, from options as in a job file.
#ifndef MUSTER_WORKER_MODELS_LANGUAGE_LANGUAGE_MODEL_MAKER_H_
#define MUSTER_WORKER_MODELS_LANGUAGE_LANGUAGE_MODEL_MAKER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/arange.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker/models/seed.h"
#include "worker/models/spec_from_json.h"

namespace muster::models {

// Makes models of one kind. `small`: the default options of the tests, with a vocabulary of 17 and
// 2 layers.
class LanguageModelMaker {
 public:
  LanguageModelMaker(std::string kind, nlohmann::json small)
      : kind_(std::move(kind)), small_(std::move(small)) {}

  const std::string& kind() const { return kind_; }
  const nlohmann::json& small() const { return small_; }

  nlohmann::json With(const std::string& key, const nlohmann::json& value) const {
    nlohmann::json options = small_;
    options[key] = value;
    return options;
  }

  std::unique_ptr<Model> Make(const nlohmann::json& options, uint64_t seed = 1) const {
    auto model = CreateFromJson(kind_, options, seed);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

 private:
  const std::string kind_;
  const nlohmann::json small_;
};

inline std::map<std::string, at::Tensor> ByName(const Model& model) {
  std::map<std::string, at::Tensor> tensors;
  for (const Parameter& parameter : model.Parameters()) tensors[parameter.name] = parameter.tensor;
  return tensors;
}

// Sets random values that make the logits of a token depend on the whole text before it: strong
// attention, with small embeddings and biases.
inline void FollowTheText(const Model& model) {
  const at::NoGradGuard no_grad;
  at::Generator generator = MakeGenerator(3);
  for (const auto& [name, tensor] : model.Parameters()) {
    const auto has = [&name = name](const char* part) { return absl::StrContains(name, part); };
    tensor.normal_(0, 0.3, generator);
    if (tensor.dim() == 1) {
      has(".bias") ? tensor.mul_(0.1) : tensor.add_(1);
    } else if (has("wte") || has("embed_tokens")) {
      tensor.mul_(0.1);
    } else if (has("attn")) {
      tensor.mul_(3);
    }
  }
}

inline at::Tensor Tokens(int64_t batch, int64_t length) {
  return at::arange(batch * length, at::kLong).mul_(7).add_(3).remainder_(17).view({batch, length});
}

inline at::Tensor Evaluate(Model& model, const at::Tensor& tokens) {
  ForwardContext context(Mode::kEvaluate, MakeGenerator(0));
  return model.Logits(tokens, context);
}

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LANGUAGE_LANGUAGE_MODEL_MAKER_H_
