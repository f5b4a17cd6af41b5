// One optimizer step on one rank: micro-batches, backward with overlapped reduction, loss scale,
// clipping, update. A rank that has less input than others takes part in all that they do together,
// and updates as they do.
#ifndef MUSTER_WORKER_TRAIN_STEP_H_
#define MUSTER_WORKER_TRAIN_STEP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"
#include "worker/models/model.h"
#include "worker/optim/loss_scaler.h"
#include "worker/optim/optimizer.h"
#include "worker/parallel/strategy.h"
#include "worker/trace/recorder.h"
#include "worker/train/finite.h"
#include "worker/train/input_plan.h"
#include "worker/train/job.h"
#include "worker/train/outcome.h"
#include "worker/train/trained_parameters.h"

namespace muster::train {

// What all ranks say alike of a step.
struct StepPlan {
  int64_t step = 0;         // optimizer steps done after it
  data::Position position;  // of the sampler, before it
  InputPlan inputs;
  double learning_rate = 0;  // what the schedule scales
};

struct StepResult {
  // Of this rank's micro-batches: the weighted sum of their mean losses, and of the weights
  // (roll_call_plan.h).
  double loss_sum = 0;
  double loss_weight = 0;
  // The first one whose loss is not finite, with its samples, for people; else empty.
  std::string not_finite;
  Outcome outcome = Outcome::kApplied;
  double learning_rate = 0;
  // Before clipping; where it was computed and is finite.
  std::optional<double> grad_norm;
  // That the gradients were computed with; only with Precision::kFloat16.
  std::optional<double> loss_scale;
};

// Holds no state over steps: everything it touches belongs to the session.
// Threading: the session's thread.
class Stepper {
 public:
  struct Parts {
    const Job* job;
    int64_t rank;
    models::Model* model;
    models::ForwardContext* context;
    comm::Communicator* control;  // only with DivideBy::kSamples: one operation in each step
    const data::Dataset* dataset;
    data::Sampler* sampler;
    parallel::Strategy* strategy;
    optim::Optimizer* optimizer;
    optim::LossScaler* scaler;            // null unless Precision::kFloat16
    const FiniteCheck* finite;            // of the model
    trace::Recorder* recorder = nullptr;  // null: nothing is recorded
    // Which of the model's parameters are trained; null: nobody looks whether that changes while a
    // step runs.
    const TrainedParameters* trained = nullptr;
  };
  // All parts outlive the stepper.
  explicit Stepper(const Parts& parts);

  // The step that makes plan.step optimizer steps done, over the samples that follow plan.position.
  // An outcome other than kApplied is equal on all ranks and has left parameters, buffers and the
  // optimizer as they were. Errors: the communicator's; those of reading, and of the model's code,
  // with rank and samples; OUT_OF_RANGE, on all ranks, when a buffer is not finite (then nothing is
  // updated either) and steps are not to be skipped for it.
  absl::StatusOr<StepResult> Run(const StepPlan& plan);

 private:
  // FAILED_PRECONDITION: model code has frozen or unfrozen a parameter since the step began.
  absl::Status CheckFlags(int64_t step) const;
  bool by_terms() const { return parts_.job->uneven_inputs.divide_by == DivideBy::kSamples; }
  // All micro-batches.
  absl::Status Accumulate(const StepPlan& plan, StepResult* result);
  absl::Status ForwardBackward(int64_t step, int64_t micro_batch,
                               const std::vector<int64_t>& samples, StepResult* result);
  // On a rank without input, where the others' forwards and backwards wait for this one's.
  absl::Status JoinForwardBackward(int64_t step, int64_t micro_batch);
  // After the reduction: takes the loss scale off, divides by `terms` (1: they are divided), clips.
  // False, on all ranks: a gradient is not finite.
  absl::StatusOr<bool> PrepareGradients(double terms, StepResult* result);

  const Parts parts_;
  // Of the newest step. An error ends the session, whose end must not wait for it before the other
  // ranks know.
  at::Tensor terms_;
  std::unique_ptr<comm::Work> counting_;
  const double full_terms_;  // of a micro-batch: by which terms become weights
  const at::Tensor probe_;   // of the pieces; undefined where all are empty
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_STEP_H_
