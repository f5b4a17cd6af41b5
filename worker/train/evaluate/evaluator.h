// How commands ask for a pass of evaluation.
#ifndef MUSTER_WORKER_TRAIN_EVALUATE_EVALUATOR_H_
#define MUSTER_WORKER_TRAIN_EVALUATE_EVALUATOR_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/train/reports/outside.h"

namespace muster::train {

class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // Whether the job has data for this stage; false for a stage that is not known.
  virtual bool HasDataFor(const std::string& stage) const = 0;
  // The pass, or an error that all ranks have and that need not end the session.
  using Evaluated = absl::StatusOr<StageEvaluated>;
  // A collective: a pass over these data, and reports it as that of a stage.
  virtual absl::StatusOr<Evaluated> EvaluateNow(const std::string& stage) = 0;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_EVALUATE_EVALUATOR_H_
