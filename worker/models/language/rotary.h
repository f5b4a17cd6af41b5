// Rotary position embedding (Su et al. 2021) in Hugging Face's layout: number i of a head's first
// half is rotated together with number i of its second half.
#ifndef MUSTER_WORKER_MODELS_LANGUAGE_ROTARY_H_
#define MUSTER_WORKER_MODELS_LANGUAGE_ROTARY_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "c10/core/Device.h"
#include "common/huggingface/decoder_shape.h"

namespace muster::models {

// Holds the angles of all positions, which do not belong to a model's weights. The angles move to
// the device of the rotated tensor. Threading: one thread at a time.
class Rotary {
 public:
  // `head`: the width of one head; must be even.
  Rotary(int64_t context, int64_t head, const huggingface::RotaryFrequencies& frequencies);

  // Rotates the heads of each position: [B, C, H, head] -> the same shape, in float32. C <=
  // context.
  at::Tensor Turn(const at::Tensor& x);

  // Rotates tokens at these positions, int64 [B, C], each below the context.
  at::Tensor TurnAt(const at::Tensor& positions, const at::Tensor& x);

 private:
  void MoveTo(c10::Device device);

  // [context, 1, head], float32: the cosines, and the sines with their sign in the rotation.
  at::Tensor cosines_;
  at::Tensor sines_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LANGUAGE_ROTARY_H_
