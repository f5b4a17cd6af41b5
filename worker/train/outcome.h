// What became of an optimizer step. Equal on all ranks: it is decided from the reduced gradients
// and the synchronized buffers, whose bits are.
#ifndef MUSTER_WORKER_TRAIN_OUTCOME_H_
#define MUSTER_WORKER_TRAIN_OUTCOME_H_

#include <cstdint>

namespace muster::train {

// The numbers travel in the roll call.
enum class Outcome : int64_t {
  kApplied = 0,
  // The rest: a gradient, or with kSkipped a buffer, was not finite, and nothing was updated.
  kSkipped = 1,  // as on_nan: skip_step says
  kOverflowed =
      // on_nan: fail, float16: the loss scale answers for it, unless a loss is not finite either
      2,
  kRefused = 3,  // on_nan: fail: the job ends
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_OUTCOME_H_
