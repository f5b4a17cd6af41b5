// Optimizers over lists of parameters.
//
// Life cycle: made once per session. Every training step calls Step once after the reduced
// backward, or StepBucket once for each bucket. The parameter tensors are given at creation; their
// gradients are read through grad() in each step, because they may be new tensors every time.
// State is on the device of the parameters. On a device other than the CPU, a step is ordered in
// the current stream, and the host does not wait.
// Threading: one thread at a time.
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

// A parameter or a piece of one: dense float32 or float64, contiguous, on the same device as all
// others. If a parameter is cut at multiples of 16 elements, a step gives its pieces the same bits
// as the whole.
struct OptimizedParameter {
  std::string name;
  at::Tensor tensor;
  // The weight decay of this parameter; empty: the optimizer's own.
  std::optional<double> weight_decay = std::nullopt;
  // Factor on the learning rate of every step.
  double lr_scale = 1;
  // The state with which it begins, in the order of SlotsOf (options.h); the optimizer takes
  // ownership of the tensors. Each has the tensor's shape and type, or is a float32 scalar; all are
  // on the tensor's device. Empty: zeros.
  std::vector<at::Tensor> state = {};
  // The bucket with which its gradient is reduced, for StepBucket.
  size_t bucket = 0;
};

// One piece of an optimizer's state. `tensor` is the live state: writing into it changes it.
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
  // is changed. `skip`: a float32 scalar on the parameters' device, for a decision that only the
  // device knows: if it is 1, nothing is changed; otherwise it is 0. Undefined: as 0. `unused`:
  // such a scalar for each parameter, in the order in which they were given: if it is 1, this
  // parameter and its state are not changed, as PyTorch leaves one whose grad is None. Empty: as if
  // all were undefined.
  absl::Status Step(double learning_rate, const at::Tensor& skip = {},
                    absl::Span<const at::Tensor> unused = {}) {
    return Update(learning_rate, std::nullopt, {skip, unused});
  }

  // The same for the parameters of one bucket. The buckets may be stepped in any order; a step has
  // the same bits as with Step.
  absl::Status StepBucket(size_t bucket, double learning_rate,
                          absl::Span<const at::Tensor> unused = {}) {
    return Update(learning_rate, bucket, {/*skip=*/{}, unused});
  }

  // The error that Step would return, or StepBucket if there is a bucket; changes nothing.
  virtual absl::Status CheckGradients(std::optional<size_t> bucket) const = 0;

  // The state in the order of the parameters, and for each parameter in the order of SlotsOf; empty
  // for an optimizer without state. Complete from the start (zeros), so that checkpoints can write
  // it and fill it in place.
  virtual std::vector<NamedTensor> State() = 0;

 protected:
  // As the arguments of Step with these names.
  struct LeftOut {
    at::Tensor skip;
    absl::Span<const at::Tensor> unused;
  };

 private:
  // nullopt: all buckets.
  virtual absl::Status Update(double learning_rate, std::optional<size_t> bucket,
                              const LeftOut& left_out) = 0;
};

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_OPTIMIZER_H_
