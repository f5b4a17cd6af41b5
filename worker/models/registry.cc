#include "worker/models/registry.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "worker/models/convnet.h"
#include "worker/models/gpt2.h"
#include "worker/models/llama.h"
#include "worker/models/mlp.h"
#include "worker/models/plugin.h"
#include "worker/models/torchscript.h"

namespace muster::models {
namespace {

using Factory = absl::StatusOr<std::unique_ptr<Model>> (*)(const nlohmann::json&, uint64_t);

const std::map<std::string, Factory>& Factories() {
  static const auto& factories = *new std::map<std::string, Factory>{
      {"convnet", CreateConvnet},
      {"gpt2", CreateGpt2},
      {"llama", CreateLlama},
      {"mlp", CreateMlp},
      {"plugin", CreatePlugin},
      {"torchscript", CreateTorchscript},
  };
  return factories;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Create(const std::string& kind,
                                              const nlohmann::json& options, uint64_t seed) {
  const auto factory = Factories().find(kind);
  if (factory == Factories().end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model: expected one of ", absl::StrJoin(Kinds(), ", "), ", found '", kind, "'"));
  }
  return factory->second(options, seed);
}

std::vector<std::string> Kinds() {
  std::vector<std::string> kinds;
  for (const auto& [kind, factory] : Factories()) kinds.push_back(kind);
  return kinds;
}

}  // namespace muster::models
