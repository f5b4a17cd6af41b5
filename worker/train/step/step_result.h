// What the host learns of an optimizer step on one rank.
#ifndef MUSTER_WORKER_TRAIN_STEP_STEP_RESULT_H_
#define MUSTER_WORKER_TRAIN_STEP_STEP_RESULT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/muster/v1/metrics.pb.h"

namespace muster::train {

// How an optimizer step ended; the numbers are sent in the roll call. Equal on all ranks, because
// the reduced gradients and the synchronized buffers, which decide it, have equal bits.
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

struct StepResult {
  // The weighted sum of the mean losses of this rank's micro-batches, and the sum of the weights
  // (roll_call_plan.h).
  double loss_sum = 0;
  double loss_weight = 0;
  // The first micro-batch whose loss is not finite, with its samples, as text for errors; empty:
  // none.
  std::string not_finite;
  StepOutcome outcome = StepOutcome::kApplied;
  // As UpdateResult::unused.
  std::vector<size_t> unused = {};
  // What the step itself measures: learning rate, the norm before clipping if it was computed and
  // is finite, loss scale. LossReports adds the rest.
  v1::StepMetrics metrics;
};

// A step whose work was given to the model's device.
struct PendingStep {
  // A step that is done.
  static PendingStep Done(StepResult result) {
    return {.late = false, .await = [result = std::move(result)] { return result; }};
  }

  // Whether the device still computes it, so that the result should be read one step later. On the
  // CPU it never does, on other devices always: so all ranks read a step at the same place.
  bool late = false;
  // Waits for the device. Called once. Errors: those that Stepper::Run could not know yet.
  std::function<absl::StatusOr<StepResult>()> await;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_STEP_STEP_RESULT_H_
