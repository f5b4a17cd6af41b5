// Settings of an optimizer for some parameters only, chosen by patterns over their names. Pure.
#ifndef MUSTER_WORKER_OPTIM_GROUPS_H_
#define MUSTER_WORKER_OPTIM_GROUPS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::optim {

struct ParameterGroup {
  std::string match;  // a glob (common/glob/glob.h)
  std::optional<double> weight_decay;
  std::optional<double> lr_scale;
};

struct GroupSettings {
  std::optional<double> weight_decay;  // empty: the optimizer's own
  double lr_scale = 1;                 // factor on the learning rate
};

// The settings of each of `names`. Each setting is that of the last group that matches the name and
// sets it; a setting that no such group sets is the optimizer's own. INVALID_ARGUMENT: a pattern
// matches no name; the message has similar names.
absl::StatusOr<std::vector<GroupSettings>> SettingsFor(const std::vector<std::string>& names,
                                                       const std::vector<ParameterGroup>& groups);

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_GROUPS_H_
