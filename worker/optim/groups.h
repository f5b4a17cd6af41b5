// Settings of an optimizer, or another optimizer, for some parameters only, chosen by patterns over
// their names. Pure.
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

// What a group sets; empty: it does not set this.
struct ParameterGroup {
  std::string match;  // a glob (common/glob/glob.h)
  std::optional<double> weight_decay = std::nullopt;
  std::optional<double> lr_scale = std::nullopt;
  std::optional<double> lr = std::nullopt;
  std::optional<std::array<double, 2>> betas = std::nullopt;
  std::optional<double> eps = std::nullopt;
  std::optional<double> momentum = std::nullopt;
  // In the same group only lr_scale may be set beside it.
  std::optional<GroupOptimizer> optimizer = std::nullopt;
};

// How one parameter is trained.
struct ParameterSettings {
  OptimizerOptions options;
  std::optional<double> lr;  // at the learning rate of the job file; empty: that learning rate
  double lr_scale = 1;       // factor on its learning rate
  friend bool operator==(const ParameterSettings&, const ParameterSettings&) = default;
};

// The settings of each of `names`, where `options` are the job's own. The groups take effect in
// their order, so each setting is that of the last group that matches the name and sets it. A group
// with another optimizer replaces all settings of earlier groups but lr_scale. INVALID_ARGUMENT: a
// pattern matches no name (the message has similar names), or a group sets what the optimizer of a
// parameter does not have.
absl::StatusOr<std::vector<ParameterSettings>> SettingsFor(
    const std::vector<std::string>& names, const OptimizerOptions& options,
    const std::vector<ParameterGroup>& groups);

// The learning rate of a parameter when the learning rate of the job is `learning_rate`; in the job
// file it is `job_lr`, above 0. A change of the job's rate keeps the ratio of the two.
double RateOf(const ParameterSettings& settings, double job_lr, double learning_rate);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_GROUPS_H_
