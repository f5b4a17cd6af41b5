#include "worker/optim/groups.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/glob/glob.h"
#include "common/jobfile/near_name.h"
#include "common/status/status.h"

namespace muster::optim {
namespace {

std::string Capped(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > kShown) absl::StrAppend(&text, " and ", names.size() - kShown, " more");
  return text;
}

// The longest piece of a pattern between its stars.
std::string LongestPiece(const std::string& pattern) {
  std::string longest;
  for (size_t begin = 0; begin <= pattern.size();) {
    const size_t end = std::min(pattern.find_first_of("*?", begin), pattern.size());
    if (end - begin > longest.size()) longest = pattern.substr(begin, end - begin);
    begin = end + 1;
  }
  return longest;
}

// Returns names that a mistyped pattern may have meant: the nearest name, and the names that
// contain the pattern's longest piece (without dots at its ends).
std::vector<std::string> Near(const std::string& pattern, const std::vector<std::string>& names) {
  std::vector<std::string> near;
  const std::string nearest = jobfile::NearName(pattern, names);
  if (!nearest.empty()) near.push_back(nearest);
  std::string piece = LongestPiece(pattern);
  while (!piece.empty() && piece.back() == '.') piece.pop_back();
  while (!piece.empty() && piece.front() == '.') piece.erase(piece.begin());
  if (piece.size() < 2) return near;
  for (const std::string& name : names) {
    if (name != nearest && name.find(piece) != std::string::npos) near.push_back(name);
  }
  return near;
}

absl::Status MatchesNothing(size_t index, const std::string& pattern,
                            const std::vector<std::string>& names) {
  std::string message = absl::StrCat("optimizer.groups[", index, "].match: found '", pattern,
                                     "', which matches none of the ", names.size(), " parameters");
  const std::vector<std::string> near = Near(pattern, names);
  if (!near.empty()) absl::StrAppend(&message, "; near it: ", Capped(near));
  if (!names.empty()) absl::StrAppend(&message, "; the parameters are: ", Capped(names));
  return absl::InvalidArgumentError(message);
}

// Applies the settings of a group. Returns the name of a setting that this kind does not have, or
// "".
template <typename Options>
std::string Apply(const ParameterGroup& group, Options* options) {
  if (group.weight_decay.has_value()) options->weight_decay = *group.weight_decay;
  if constexpr (requires { options->beta1; }) {
    if (group.betas.has_value()) {
      options->beta1 = (*group.betas)[0];
      options->beta2 = (*group.betas)[1];
    }
  } else if (group.betas.has_value()) {
    return "betas";
  }
  if constexpr (requires { options->eps; }) {
    if (group.eps.has_value()) options->eps = *group.eps;
  } else if (group.eps.has_value()) {
    return "eps";
  }
  if constexpr (requires { options->momentum; }) {
    if (group.momentum.has_value()) options->momentum = *group.momentum;
  } else if (group.momentum.has_value()) {
    return "momentum";
  }
  return "";
}

absl::Status Apply(size_t index, const ParameterGroup& group, const std::string& name,
                   ParameterSettings* settings) {
  if (group.lr_scale.has_value()) settings->lr_scale = *group.lr_scale;
  if (group.optimizer.has_value()) {
    settings->options = group.optimizer->options;
    settings->lr = group.optimizer->lr;
  }
  if (group.lr.has_value()) settings->lr = group.lr;
  const std::string unknown =
      std::visit([&group](auto& own) { return Apply(group, &own); }, settings->options);
  if (unknown.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("optimizer.groups[", index, "].", unknown, ": matches parameter '", name,
                   "', whose optimizer ", KindOf(settings->options), " has no ", unknown,
                   "; expected a pattern that matches only parameters of optimizers that have it"));
}

// Checks combinations that the job file's own check cannot see, because groups may set the values
// separately.
absl::Status Check(const std::string& name, const ParameterSettings& settings) {
  const auto* const sgd = std::get_if<SgdOptions>(&settings.options);
  if (sgd == nullptr || !sgd->nesterov || sgd->momentum > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("optimizer.groups: parameter '", name,
                   "' has nesterov and momentum 0; expected a momentum above 0 with nesterov"));
}

}  // namespace

absl::StatusOr<std::vector<ParameterSettings>> SettingsFor(
    const std::vector<std::string>& names, const OptimizerOptions& options,
    const std::vector<ParameterGroup>& groups) {
  std::vector<ParameterSettings> settings(names.size(), {.options = options, .lr = std::nullopt});
  for (size_t index = 0; index < groups.size(); ++index) {
    bool matched = false;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!GlobMatches(groups[index].match, names[i])) continue;
      matched = true;
      RETURN_IF_ERROR(Apply(index, groups[index], names[i], &settings[i]));
    }
    if (!matched) return MatchesNothing(index, groups[index].match, names);
  }
  for (size_t i = 0; i < names.size(); ++i) RETURN_IF_ERROR(Check(names[i], settings[i]));
  return settings;
}

double RateOf(const ParameterSettings& settings, double job_lr, double learning_rate) {
  if (!settings.lr.has_value()) return learning_rate * settings.lr_scale;
  // The result is exactly the parameter's own rate as long as the job's rate is that of the job
  // file.
  if (learning_rate == job_lr) return *settings.lr * settings.lr_scale;
  return *settings.lr * (learning_rate / job_lr) * settings.lr_scale;
}

}  // namespace muster::optim
