#include "worker/models/rotary.h"

#include "ATen/core/IListRef.h"
#include "ATen/ops/addcmul.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/pow.h"

namespace muster::models {

Rotary::Rotary(int64_t context, int64_t head, double theta) {
  // In float32 as transformers does: at distant positions float64 would give other angles.
  const at::Tensor exponents = at::arange(0, head, 2, at::kFloat).div(head);
  const at::Tensor frequencies = at::pow(theta, exponents).reciprocal();
  const at::Tensor angles = at::arange(context, at::kFloat).unsqueeze(1).mul(frequencies);
  const at::Tensor sines = angles.sin();
  cosines_ = at::cat({angles.cos(), angles.cos()}, 1).unsqueeze(1);
  sines_ = at::cat({sines.neg(), sines}, 1).unsqueeze(1);
}

at::Tensor Rotary::Turn(const at::Tensor& x) {
  cosines_ = cosines_.to(x.device());
  sines_ = sines_.to(x.device());
  const int64_t length = x.size(1);
  // Rolled by half a head, each number meets its partner.
  return at::addcmul(x.mul(cosines_.narrow(0, 0, length)), x.roll(x.size(3) / 2, 3),
                     sines_.narrow(0, 0, length))
      .to(x.scalar_type());
}

}  // namespace muster::models
