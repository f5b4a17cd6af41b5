// Dynamic loss scaling for float16 (Micikevicius et al., "Mixed Precision Training", 2018), as
// torch.amp.GradScaler: the loss is multiplied by a scale, so that small gradients do not vanish in
// float16; the gradients are divided by it before they are used. A step whose gradients are not
// finite is left out and lowers the scale; enough good ones in a row raise it.
//
// Every rank has one and they stay equal without talking: what moves them is whether the *reduced*
// gradients are finite, and those are the same bits on all ranks.
#ifndef MUSTER_WORKER_OPTIM_LOSS_SCALER_H_
#define MUSTER_WORKER_OPTIM_LOSS_SCALER_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "worker/optim/optimizer.h"

namespace muster::optim {

struct LossScaleOptions {
  double initial = 65536;
  double growth_factor = 2;        // above 1
  double backoff_factor = 0.5;     // above 0, below 1
  int64_t growth_interval = 2000;  // steps without overflow, 1 to 2^24
};

// Threading: one thread at a time.
class LossScaler {
 public:
  explicit LossScaler(const LossScaleOptions& options);

  // What the loss is multiplied by.
  float scale() const;
  // What the gradients are multiplied by: 1 / scale, rounded once.
  float inverse_scale() const;

  // After a step: whether its gradients were finite. A scale that would overflow float32 does not
  // grow.
  void Update(bool finite);

  // Live float32 scalars, the slot "scaler" of a checkpoint: "scale", and "growth_tracker", the
  // finite steps since the scale last changed.
  std::vector<NamedTensor> State();

 private:
  const LossScaleOptions options_;
  const at::Tensor scale_;
  const at::Tensor growth_tracker_;
};

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_LOSS_SCALER_H_
