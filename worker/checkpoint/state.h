// The training state as a checkpoint sees it: a list of named tensors.
#ifndef MUSTER_WORKER_CHECKPOINT_STATE_H_
#define MUSTER_WORKER_CHECKPOINT_STATE_H_

#include <string>
#include <vector>

#include "ATen/core/Tensor.h"

namespace muster::checkpoint {

// One tensor of the state: float32 or int64, contiguous, on the CPU. `slot` is "param", "buffer", "exp_avg",
// "exp_avg_sq", "step" (a scalar, shape []) or "momentum_buffer". Copies share the tensor.
struct StateTensor {
  std::string slot;
  std::string parameter;  // the parameter's full name, or the buffer's
  at::Tensor tensor;
};

using State = std::vector<StateTensor>;

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_STATE_H_
