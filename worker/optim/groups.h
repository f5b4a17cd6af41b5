// Settings of an optimizer, or another optimizer, for some parameters only. Patterns over names
// choose the parameters. Pure.
#ifndef MUSTER_WORKER_OPTIM_GROUPS_H_
#define MUSTER_WORKER_OPTIM_GROUPS_H_

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/optim/options.h"

namespace muster::optim {

// Another optimizer for the parameters of a group.
struct GroupOptimizer {
  double lr = 0;
  OptimizerOptions options;
};

// The settings of a group; empty: the group does not set this value.
struct ParameterGroup {
  std::string match;  // a glob (common/glob/glob.h)
  std::optional<double> weight_decay = std::nullopt;
  std::optional<double> lr_scale = std::nullopt;
  std::optional<double> lr = std::nullopt;
  std::optional<std::array<double, 2>> betas = std::nullopt;
  std::optional<double> eps = std::nullopt;
  std::optional<double> momentum = std::nullopt;
  // Only lr_scale may be set in the same group, too.
  std::optional<GroupOptimizer> optimizer = std::nullopt;
};

// The settings for the training of one parameter.
struct ParameterSettings {
  OptimizerOptions options;
  std::optional<double> lr;  // at the job file's learning rate; empty: the job's rate
  double lr_scale = 1;       // factor on its learning rate
  friend bool operator==(const ParameterSettings&, const ParameterSettings&) = default;
};

// Returns the settings of each of `names`. `options`: the job's own. The groups take effect in
// their order, so each setting comes from the last group that matches the name and has this
// setting. A group with another optimizer replaces all settings of earlier groups except lr_scale.
// INVALID_ARGUMENT: a pattern matches no name (the message has similar names), or a group sets a
// value that the optimizer of a parameter does not have.
absl::StatusOr<std::vector<ParameterSettings>> SettingsFor(
    const std::vector<std::string>& names, const OptimizerOptions& options,
    const std::vector<ParameterGroup>& groups);

// Returns the learning rate of a parameter when the job's learning rate is `learning_rate`.
// `job_lr`: the job file's learning rate, above 0. The ratio of parameter's and job's rate stays
// constant.
double RateOf(const ParameterSettings& settings, double job_lr, double learning_rate);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_GROUPS_H_
