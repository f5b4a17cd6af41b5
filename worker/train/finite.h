// What of a model has to stay finite. The loss of a step is computed before its update, and
// BatchNorm's statistics may overflow where no loss does: a finite loss says nothing of the
// parameters and buffers after its step.
#ifndef MUSTER_WORKER_TRAIN_FINITE_H_
#define MUSTER_WORKER_TRAIN_FINITE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/models/model.h"
#include "worker/parallel/strategy.h"

namespace muster::train {

// Threading: the model's.
class FiniteCheck {
 public:
  // Of `model`, which outlives it, with its initial values: a buffer that is not finite from the
  // start (a mask of -inf, say) is meant so and not looked at.
  explicit FiniteCheck(const models::Model& model);

  // OUT_OF_RANGE, on all ranks, naming the first parameter or buffer with a value that is not
  // finite. Asked before weights are kept. strategy: of the model; null: every rank has all of it.
  // Where ranks hold shards, a collective of the strategy, whose errors it has too; then a
  // parameter's name is told by the ranks that hold such a value.
  absl::Status Check(int64_t step, parallel::Strategy* strategy) const;

  // The same of the buffers alone, which are few: asked in every step.
  absl::Status CheckBuffers(int64_t step) const;

 private:
  absl::Status CheckShards(int64_t step, const std::vector<models::Parameter>& parameters,
                           parallel::Strategy& strategy) const;

  const models::Model& model_;
  std::vector<models::Buffer> buffers_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_FINITE_H_
