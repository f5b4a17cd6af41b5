// Rotary position embedding (Su et al. 2021) in Hugging Face's layout: the number i of a head's
// first half is turned together with the number i of its second half.
#ifndef MUSTER_WORKER_MODELS_ROTARY_H_
#define MUSTER_WORKER_MODELS_ROTARY_H_

#include <cstdint>

#include "ATen/core/Tensor.h"

namespace muster::models {

// The angles of all positions: constants, no part of a model's weights. Threading: const.
class Rotary {
 public:
  // `head` is even: the width of one head. Pair i turns by position / theta^(2i / head).
  Rotary(int64_t context, int64_t head, double theta);

  // [B, C, H, head] -> the same with each position's heads turned, computed in float32. C <=
  // context.
  at::Tensor Turn(const at::Tensor& x) const;

 private:
  // [context, 1, head], float32: the cosines, and the sines with the sign that they have in the
  // rotation.
  at::Tensor cosines_;
  at::Tensor sines_;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_ROTARY_H_
