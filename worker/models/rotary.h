// Rotary position embedding (Su et al. 2021) in Hugging Face's layout: number i of a head's first
// half is rotated together with number i of its second half.
#ifndef MUSTER_WORKER_MODELS_ROTARY_H_
#define MUSTER_WORKER_MODELS_ROTARY_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"

namespace muster::models {

// The angles of all positions: constants that do not belong to a model's weights. They move to the
// device of what is turned. Threading: one thread at a time.
class Rotary {
 public:
  // `head`: the width of one head, which is even. Pair i is rotated by position / theta^(2i /
  // head).
  Rotary(int64_t context, int64_t head, double theta);

  // [B, C, H, head] -> the same shape, with the heads of each position rotated, computed in
  // float32. C <= context.
  at::Tensor Turn(const at::Tensor& x);

  // The same for tokens at these positions, int64 [B, C], each below the context.
  at::Tensor TurnAt(const at::Tensor& positions, const at::Tensor& x);

 private:
  void MoveTo(c10::Device device);

  // [context, 1, head], float32: the cosines, and the sines with the sign that they have in the
  // rotation.
  at::Tensor cosines_;
  at::Tensor sines_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_ROTARY_H_
