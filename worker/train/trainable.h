// Which parameters of a model are trained.
#ifndef MUSTER_WORKER_TRAIN_TRAINABLE_H_
#define MUSTER_WORKER_TRAIN_TRAINABLE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/models/model.h"

namespace muster::train {

struct TrainableRule {
  bool freeze = true;   // else unfreeze
  std::string pattern;  // of parameters' names (common/glob)
};

// Sets requires_grad of the parameters that rules fit; the last that fits decides. INVALID_ARGUMENT, with all of them, for
// patterns that fit no parameter; nothing is changed then.
absl::Status ApplyRules(const std::vector<TrainableRule>& rules, const models::Model& model);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINABLE_H_
