#include "worker/models/judged.h"

#include "ATen/ops/arange.h"
#include "ATen/ops/argmax.h"
#include "ATen/ops/eq.h"
#include "ATen/ops/gather.h"
#include "ATen/ops/le.h"
#include "ATen/ops/logical_and.h"
#include "ATen/ops/logical_not.h"
#include "ATen/ops/logical_or.h"
#include "ATen/ops/lt.h"
#include "ATen/ops/ones_like.h"
#include "ATen/ops/sum.h"

namespace muster::models {

at::Tensor Judged::Targets() const {
  return counts.defined() ? targets.masked_fill(counts.logical_not(), 0) : targets;
}

at::Tensor Judged::Counted() const {
  return counts.defined() ? counts.to(at::kLong) : at::ones_like(targets);
}

at::Tensor Judged::Predicted() const { return logits.argmax(-1); }

at::Tensor Judged::InTop(int64_t k) const {
  const at::Tensor target = Targets().unsqueeze(1);
  const at::Tensor own = logits.gather(1, target);
  const at::Tensor lower = at::arange(logits.size(1), target.options()).lt(target);
  // Written so that a NaN counts as larger.
  const at::Tensor larger =
      logits.le(own).logical_not().logical_or(logits.eq(own).logical_and(lower));
  const at::Tensor in_top = larger.sum(1).lt(k);
  return counts.defined() ? in_top.logical_and(counts) : in_top;
}

at::Tensor Judged::Correct() const {
  const at::Tensor correct = Predicted().eq(targets);
  return (counts.defined() ? correct.logical_and(counts) : correct).sum();
}

}  // namespace muster::models
