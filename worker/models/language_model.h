// A causal language model as transformers has it: what such models share besides their units.
// Tokens go in, the layers have all one shape, and weights files and config.json are Hugging
// Face's.
#ifndef MUSTER_WORKER_MODELS_LANGUAGE_MODEL_H_
#define MUSTER_WORKER_MODELS_LANGUAGE_MODEL_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "worker/models/model.h"

namespace muster::models {

struct LanguageModelShape {
  int64_t vocab_size = 0;
  int64_t context = 0;
  int64_t layers = 0;
  int64_t width = 0;
  int64_t layer_matrices = 0;  // numbers in the matrices of one layer
  bool tied = false;
};

// Of weights files.
struct LanguageModelNames {
  // What files of the bare model, without a head, leave out in front.
  std::string prefix;
  // The token embedding, which `lm_head.weight` is too where they are tied: then a file may hold
  // either, or both.
  std::string embedding;
  // Endings of the constants that old files carry.
  std::vector<std::string> constants;
};

// A key of config.json ("a.b": b within a) and the value that it must have where it is there.
using ConfigFact = std::pair<std::string, nlohmann::json>;

class LanguageModel : public Model {
 public:
  double ForwardFlops() const override;
  WeightName ResolveWeight(const std::string& name) const override;
  absl::Status CheckHuggingFaceConfig(const std::string& text) const override;

 protected:
  LanguageModel(std::string kind, std::unique_ptr<Unit> root, const LanguageModelShape& shape,
                LanguageModelNames names);

  InputSpec UnitsInput() const override;

  // What the weights do not show of themselves.
  virtual std::vector<ConfigFact> ConfigFacts() const = 0;

 private:
  const LanguageModelShape shape_;
  const LanguageModelNames names_;
  std::set<std::string> parameters_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LANGUAGE_MODEL_H_
