// How an optimizer step ended. Equal on all ranks, because it is decided from the reduced gradients
// and the synchronized buffers, whose bits are equal.
#ifndef MUSTER_WORKER_TRAIN_STEP_STEP_OUTCOME_H_
#define MUSTER_WORKER_TRAIN_STEP_STEP_OUTCOME_H_

#include <cstdint>

namespace muster::train {

// The numbers are sent in the roll call.
enum class StepOutcome : int64_t {
  kApplied = 0,
  // In the other cases a gradient, or with kSkipped a buffer, was not finite. With kSkipped and
  // kOverflowed nothing was updated.
  kSkipped = 1,  // on_nan: skip_step
  // on_nan: fail with float16: the loss scale was too large. If a loss is not finite either, the
  // job ends.
  kOverflowed = 2,
  // on_nan: fail without float16: the job ends. Parameters and the optimizer's state may have been
  // updated.
  kRefused = 3,
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_STEP_STEP_OUTCOME_H_
