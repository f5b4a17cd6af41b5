// Optimizers over lists of parameters.
//
// Life cycle: an optimizer is made once per session. Every training step calls Step once after the
// reduced backward, or StepBucket once for each bucket. The parameter tensors are given at
// creation. Their gradients are read through grad() in each step, because they may be new tensors
// every time. The state is on the device of the parameters. On a device other than the CPU, a step
// is ordered in the current stream, and the host does not wait. Threading: one thread at a time.
#ifndef MUSTER_WORKER_OPTIM_OPTIMIZER_H_
#define MUSTER_WORKER_OPTIM_OPTIMIZER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

namespace muster::optim {

// A parameter or a piece of a parameter: dense float32 or float64, contiguous, on the same device
// as all others. A step gives pieces that are cut at multiples of 16 elements the same bits as the
// whole parameter.
struct OptimizedParameter {
  std::string name;
  at::Tensor tensor;
  // The weight decay of this parameter; empty: the optimizer's own.
  std::optional<double> weight_decay = std::nullopt;
  // A factor on the learning rate of every step.
  double lr_scale = 1;
  // The initial state, in the order of SlotsOf (options.h); the optimizer takes ownership of the
  // tensors. Each state tensor has the parameter's shape and type, or is a float32 scalar; all are
  // on the parameter's device. Empty: zeros.
  std::vector<at::Tensor> state = {};
  // The bucket in which its gradient is reduced, for StepBucket.
  size_t bucket = 0;
};

// One piece of an optimizer's state. `tensor` is the live state: writing to it changes the state.
struct NamedTensor {
  std::string parameter;
  std::string slot;   // "exp_avg" (docs/reference/checkpoint-format.md)
  at::Tensor tensor;  // of the parameter's shape and type; "step" is a float32 scalar
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Updates every parameter from its gradient. A zero gradient is stepped like any other (decay,
  // momentum). FAILED_PRECONDITION: a parameter, which the message names, has no gradient; nothing
  // is changed.
  //
  // `skip`: a float32 scalar on the parameters' device, for a decision that only the device knows.
  // 1: nothing is changed. 0, or undefined: no effect.
  //
  // `unused`: such a scalar for each parameter, in the order of creation. 1: this parameter and its
  // state are not changed, as in PyTorch if grad is None. Empty: all are undefined.
  absl::Status Step(double learning_rate, const at::Tensor& skip = {},
                    absl::Span<const at::Tensor> unused = {}) {
    return Update(learning_rate, std::nullopt, {skip, unused});
  }

  // Updates the parameters of one bucket. The buckets may be stepped in any order; a step has the
  // same bits as with Step.
  absl::Status StepBucket(size_t bucket, double learning_rate,
                          absl::Span<const at::Tensor> unused = {}) {
    return Update(learning_rate, bucket, {/*skip=*/{}, unused});
  }

  // Returns the error that Step would return, or StepBucket if there is a bucket. Changes nothing.
  virtual absl::Status CheckGradients(std::optional<size_t> bucket) const = 0;

  // Returns the state in the order of the parameters, and for each parameter in the order of
  // SlotsOf; empty for an optimizer without state. The state is complete from the start (zeros), so
  // that checkpoints can write it and fill it in place.
  virtual std::vector<NamedTensor> State() = 0;

 protected:
  // The arguments of Step with these names.
  struct LeftOut {
    at::Tensor skip;
    absl::Span<const at::Tensor> unused;
  };

 private:
  // `bucket`: nullopt: all buckets.
  virtual absl::Status Update(double learning_rate, std::optional<size_t> bucket,
                              const LeftOut& left_out) = 0;
};

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_OPTIMIZER_H_
