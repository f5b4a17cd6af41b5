// What a cross entropy judges, and how right the logits are. Everything is computed where the
// logits are, without waiting for a device.
#ifndef MUSTER_WORKER_MODELS_JUDGED_H_
#define MUSTER_WORKER_MODELS_JUDGED_H_

#include <cstdint>

#include "ATen/core/Tensor.h"

namespace muster::models {

struct Judged {
  at::Tensor logits;   // [N, classes]
  at::Tensor targets;  // int64 [N], classes; any number where it does not count
  at::Tensor counts;   // bool [N], which targets count; undefined: all of them

  // The targets; 0 where one does not count.
  at::Tensor Targets() const;
  // 1 for each target that counts, int64 [N].
  at::Tensor Counted() const;
  // The class with the largest logit, int64 [N].
  at::Tensor Predicted() const;
  // Which targets count and are among the `k` classes with the largest logits, bool [N]. Of equal
  // logits the one of the lower class is the larger one; NaN is larger than everything.
  at::Tensor InTop(int64_t k) const;
  // How many targets count and have the largest logit: an int64 scalar.
  at::Tensor Correct() const;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_JUDGED_H_
