// How commands change which parameters are trained.
#ifndef MUSTER_WORKER_TRAIN_TRAINABILITY_TRAINABILITY_CHANGER_H_
#define MUSTER_WORKER_TRAIN_TRAINABILITY_TRAINABILITY_CHANGER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/trainability/trainability.h"
#include "worker/train/reports/outside.h"

namespace muster::train {

class TrainabilityChanger {
 public:
  virtual ~TrainabilityChanger() = default;

  // INVALID_ARGUMENT: the rules do not fit the model.
  virtual absl::Status CheckRules(const std::vector<TrainableRule>& rules) const = 0;
  // What a change to these rules, which CheckRules allows, would do. Changes nothing. The errors of
  // this and of the following end the session.
  virtual absl::StatusOr<TrainabilityPlan> Foresee(const std::vector<TrainableRule>& rules,
                                                   int64_t command) const = 0;
  // A collective: adds these rules, which CheckRules allows, as the command asks.
  virtual absl::StatusOr<TrainabilityChange> Add(const std::vector<TrainableRule>& rules,
                                                 int64_t command) = 0;
  // A collective: brings into force the changes of flags that were held back.
  virtual absl::StatusOr<TrainabilityChange> BringPendingIntoForce(int64_t command) = 0;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINABILITY_TRAINABILITY_CHANGER_H_
