// The result of an optimizer step on one rank, on the host.
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

// The outcome of an optimizer step. Equal on all ranks: it follows from the reduced gradients and
// the synchronized buffers, which have equal bits on all ranks. The numbers are sent in the roll
// call.
enum class StepOutcome : int64_t {
  kApplied = 0,
  // In the other cases a gradient was not finite, or with kSkipped a buffer. With kSkipped and
  // kOverflowed nothing was updated.
  kSkipped = 1,  // on_nan: skip_step
  // on_nan: fail with float16: the loss scale was too large. The job ends only if a loss is
  // not finite either.
  kOverflowed = 2,
  // on_nan: fail without float16: the job ends. Parameters and the optimizer's state may have been
  // updated.
  kRefused = 3,
};

struct StepResult {
  // `loss_sum`: the weighted sum of the mean losses of this rank's micro-batches. `loss_weight`:
  // the sum of the weights (roll_call_plan.h).
  double loss_sum = 0;
  double loss_weight = 0;
  // The first micro-batch whose loss is not finite, with its samples, as text for errors; empty:
  // all losses are finite.
  std::string not_finite;
  StepOutcome outcome = StepOutcome::kApplied;
  // The same as UpdateResult::unused.
  std::vector<size_t> unused = {};
  // The measurements of the step itself: learning rate, loss scale, and the norm before clipping if
  // it was computed and is finite. LossReports adds the others.
  v1::StepMetrics metrics;
};

// A step whose work was given to the model's device.
struct PendingStep {
  // A step that is done.
  static PendingStep Done(StepResult result) {
    return {.late = false, .await = [result = std::move(result)] { return result; }};
  }

  // Whether the device may still compute the step, so that the result should be read one step
  // later. Always false on the CPU and always true on other devices, so that all ranks read the
  // result of a step at the same point.
  bool late = false;
  // Waits for the device. Called once. Errors: those that Stepper::Run could not know yet.
  std::function<absl::StatusOr<StepResult>()> await;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_STEP_STEP_RESULT_H_
