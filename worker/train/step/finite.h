// Checks that the parameters and buffers of a model stay finite. The loss of a step is computed
// before its update, and BatchNorm's statistics may overflow although no loss does, so a finite
// loss does not show that the parameters and buffers after its step are finite.
#ifndef MUSTER_WORKER_TRAIN_STEP_FINITE_H_
#define MUSTER_WORKER_TRAIN_STEP_FINITE_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/checkpoint/state.h"
#include "worker/models/model.h"
#include "worker/parallel/strategy.h"

namespace muster::train {

// Threading: the model's.
class FiniteCheck {
 public:
  // `model` must outlive this object and must still have its initial values. A buffer that is not
  // finite from the start (for example a mask of -inf) is meant to be so and is not checked.
  // `device`: of the strategy that Check is given.
  explicit FiniteCheck(const models::Model& model, c10::Device device = c10::kCPU);

  // Called before weights are saved. OUT_OF_RANGE, on all ranks, names the first parameter or
  // buffer with a value that is not finite. `strategy`: that of the model; null: every rank has the
  // whole model. If ranks hold shards, this is a collective of the strategy and also returns its
  // errors; then only the ranks that hold such a value name the parameter.
  absl::Status Check(int64_t step, parallel::Strategy* strategy) const;

  // The parameters of which `state` has parts; no collective. OUT_OF_RANGE names the first one.
  static absl::Status CheckParameters(int64_t step, const checkpoint::State& state);

  // Checks the buffers only. They are few, so this is called in every step.
  absl::Status CheckBuffers(int64_t step) const;

  // The same in two parts, for buffers on a device for which the host does not wait. The first
  // computes the largest magnitude of each buffer there, a tensor [buffers]; undefined if there are
  // none. The second is given its values, and returns what CheckBuffers would have returned.
  at::Tensor LargestOfBuffers() const;
  absl::Status CheckLargest(absl::Span<const double> largest, int64_t step) const;

 private:
  absl::Status CheckShards(int64_t step, const std::vector<models::Parameter>& parameters,
                           parallel::Strategy& strategy) const;

  const models::Model& model_;
  const c10::Device device_;
  std::vector<models::Buffer> buffers_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_STEP_FINITE_H_
