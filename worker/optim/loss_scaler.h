// Dynamic loss scaling for float16 (Micikevicius et al., "Mixed Precision Training", 2018), as
// torch.amp.GradScaler. The loss is multiplied by a scale, so that small gradients do not vanish in
// float16; the gradients are divided by the scale before their use. A step whose gradients are not
// finite is skipped and lowers the scale. Enough steps in a row with finite gradients raise the
// scale.
//
// Every rank has a scaler. The scalers stay equal without communication, because they depend only
// on whether the *reduced* gradients are finite. Reduced gradients have the same bits on all ranks.
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
  // device: the device of the scale.
  explicit LossScaler(const LossScaleOptions& options, c10::Device device = c10::kCPU);

  // The factor of the loss. Only on the CPU.
  float scale() const;
  // The factor of the gradients: 1 / scale, rounded once. Only on the CPU.
  float inverse_scale() const;
  // Takes in after each step whether its gradients were finite. The scale does not grow beyond
  // float32. Only on the CPU.
  void Update(bool finite);

  // The scale and the update on any device, without a wait of the host. The scale is a live float32
  // scalar, and the argument of Update a bool scalar.
  const at::Tensor& scale_on_device() const { return scale_; }
  void UpdateOnDevice(const at::Tensor& finite);

  // Returns the slot "scaler" of a checkpoint, as live float32 scalars: "scale", and
  // "growth_tracker", the number of finite steps since the last change of the scale.
  std::vector<NamedTensor> State();

 private:
  const LossScaleOptions options_;
  const at::Tensor scale_;
  const at::Tensor growth_tracker_;
};

}  // namespace muster::optim

#endif  // MUSTER_WORKER_OPTIM_LOSS_SCALER_H_
