// One optimizer step on one rank: micro-batches, backward with overlapped reduction, loss scale, clipping, update.
#ifndef MUSTER_WORKER_TRAIN_STEP_H_
#define MUSTER_WORKER_TRAIN_STEP_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "common/trainability/trainability.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"
#include "worker/models/model.h"
#include "worker/optim/loss_scaler.h"
#include "worker/optim/optimizer.h"
#include "worker/parallel/strategy.h"
#include "worker/trace/recorder.h"
#include "worker/train/finite.h"
#include "worker/train/job.h"
#include "worker/train/outcome.h"

namespace muster::train {

struct StepResult {
  // Sum of this rank's micro-batches' mean losses.
  double loss_sum = 0;
  Outcome outcome = Outcome::kApplied;
  double learning_rate = 0;
  // Before clipping; where it was computed and is finite.
  std::optional<double> grad_norm;
  // That the gradients were computed with; only with Precision::kFloat16.
  std::optional<double> loss_scale;
};

// Holds no state of its own: everything it touches belongs to the session.
// Threading: the session's thread.
class Stepper {
 public:
  struct Parts {
    const Job* job;
    int64_t rank;
    models::Model* model;
    models::ForwardContext* context;
    const data::Dataset* dataset;
    data::Sampler* sampler;
    parallel::Strategy* strategy;
    optim::Optimizer* optimizer;
    optim::LossScaler* scaler;  // null unless Precision::kFloat16
    const FiniteCheck* finite;  // of the model
    trace::Recorder* recorder = nullptr;  // null: nothing is recorded
    // Which of the model's parameters are trained; null: nobody looks whether that changes while a step runs.
    const Mask* trained = nullptr;
  };
  // All parts outlive the stepper.
  explicit Stepper(const Parts& parts);

  // The step that makes `step` optimizer steps done, over the samples that follow `position`; the sum
  // of all ranks' gradients is divided by `divisor`. An outcome other than kApplied is equal on all
  // ranks and has left parameters, buffers and the optimizer as they were. Errors: the
  // communicator's; INTERNAL from LibTorch; OUT_OF_RANGE, on all ranks, when a buffer is not finite (then
  // nothing is updated either) and steps are not to be skipped for it.
  // learning_rate: what the schedule scales.
  absl::StatusOr<StepResult> Run(int64_t step, const data::Position& position, double divisor,
                                 double learning_rate);

 private:
  // FAILED_PRECONDITION: model code has frozen or unfrozen a parameter since the step began.
  absl::Status CheckFlags(int64_t step) const;
  absl::StatusOr<double> ForwardBackward(int64_t step, int64_t micro_batch,
                                         const data::Position& position);
  // After the reduction: takes the loss scale off, clips. False, on all ranks: a gradient is not finite.
  absl::StatusOr<bool> PrepareGradients(StepResult* result);

  const Parts parts_;
  const std::vector<models::Parameter> parameters_;
  const at::Tensor probe_;  // of the pieces; undefined where all are empty
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_STEP_H_
