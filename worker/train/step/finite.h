// Checks that the parameters and buffers of a model are finite. A finite loss does not show this.
// The loss of a step is computed before the update, and BatchNorm's statistics may overflow alone.
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

// Threading: the model's thread.
class FiniteCheck {
 public:
  // `model` must outlive this object and must still have its initial values. A buffer that is not
  // finite at the start (for example a mask of -inf) is intended and is not checked. `device`: that
  // of the strategy in Check.
  explicit FiniteCheck(const models::Model& model, c10::Device device = c10::kCPU);

  // Checks all parameters and buffers before weights are saved. OUT_OF_RANGE, on all ranks, names
  // the first one with a value that is not finite. `strategy`: the model's; null: every rank has
  // the whole model. With shards, Check is a collective of the strategy and also returns its
  // errors. Then only the ranks that hold such a value name the parameter.
  absl::Status Check(int64_t step, parallel::Strategy* strategy) const;

  // Checks the parameters of which `state` has parts. Not a collective. OUT_OF_RANGE names the
  // first one.
  static absl::Status CheckParameters(int64_t step, const checkpoint::State& state);

  // Checks the buffers. Called in every step; models have few buffers.
  absl::Status CheckBuffers(int64_t step) const;

  // The check of the buffers in two parts, so that the host does not wait for a device.
  // LargestOfBuffers computes the largest magnitude of each buffer on the device, as a tensor
  // [buffers]; undefined if there are no buffers. CheckLargest takes these values and returns the
  // result of CheckBuffers.
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
