// Which parameters of a model autograd trains: trainability.h as the model's flags.
#ifndef MUSTER_WORKER_TRAIN_TRAINABLE_H_
#define MUSTER_WORKER_TRAIN_TRAINABLE_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/trainability/trainability.h"
#include "worker/models/model.h"

namespace muster::train {

// The model's parameters with their flags as they are now, and the rules. Changes nothing. Errors:
// Trainability::Create's.
absl::StatusOr<Trainability> TrainabilityOf(const models::Model& model,
                                            const std::vector<TrainableRule>& rules);

// requires_grad of each parameter.
Mask FlagsOf(const std::vector<models::Parameter>& parameters);
bool FlagsDiffer(const std::vector<models::Parameter>& parameters, const Mask& mask);
// Gradients of what is frozen are dropped.
void SetFlags(const std::vector<models::Parameter>& parameters, const Mask& mask);

// Sets the flags as the rules say. INVALID_ARGUMENT, with all of them, for patterns that fit no
// parameter; nothing is changed then.
absl::Status ApplyRules(const std::vector<TrainableRule>& rules, const models::Model& model);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINABLE_H_
