#include "worker/train/trainable.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/glob/glob.h"

namespace muster::train {

absl::Status ApplyRules(const std::vector<TrainableRule>& rules, const models::Model& model) {
  std::vector<bool> fits(rules.size());
  std::vector<std::pair<at::Tensor, bool>> decided;
  for (const auto& [name, tensor] : model.Parameters()) {
    std::optional<bool> trained;
    for (size_t i = 0; i < rules.size(); ++i) {
      if (!GlobMatches(rules[i].pattern, name)) continue;
      fits[i] = true;
      trained = !rules[i].freeze;
    }
    if (trained.has_value()) decided.emplace_back(tensor, *trained);
  }
  std::vector<std::string> unfit;
  for (size_t i = 0; i < rules.size(); ++i) {
    if (!fits[i]) unfit.push_back(absl::StrCat("'", rules[i].pattern, "'"));
  }
  if (!unfit.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no parameter is named as ", absl::StrJoin(unfit, ", ")));
  }
  for (auto& [tensor, trained] : decided) tensor.requires_grad_(trained);
  return absl::OkStatus();
}

}  // namespace muster::train
