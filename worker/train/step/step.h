// One optimizer step on one rank: micro-batches, backward with overlapped reduction, loss scale,
// clipping and update. The update is bucket by bucket and overlaps with the reduction, unless it
// needs all gradients first. A rank with less input than other ranks takes part in all collectives
// and makes the same update.
#ifndef MUSTER_WORKER_TRAIN_STEP_STEP_H_
#define MUSTER_WORKER_TRAIN_STEP_STEP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/data/sampler.h"
#include "worker/models/model.h"
#include "worker/optim/loss_scaler.h"
#include "worker/optim/optimizer.h"
#include "worker/parallel/communicators.h"
#include "worker/parallel/strategy.h"
#include "worker/trace/recorder.h"
#include "worker/train/data/read_ahead.h"
#include "worker/train/job/input_plan.h"
#include "worker/train/job/job.h"
#include "worker/train/step/step_result.h"
#include "worker/train/step/trained_parameters.h"
#include "worker/train/step/update.h"

namespace muster::train {

// The plan of a step, the same on all ranks.
struct StepPlan {
  int64_t step = 0;         // optimizer steps done after this step
  data::Position position;  // of the sampler, before this step
  InputPlan inputs;
  double learning_rate = 0;  // the rate that the schedule scales
};

// Makes the steps. The only state between two steps is the batch that is read ahead; everything
// else belongs to the session. On a device other than the CPU, the host gives the step to the
// device and does not wait for results. Threading: the session's thread.
class Stepper {
 public:
  using Dependencies = StepDependencies;
  // All parts must outlive the stepper.
  explicit Stepper(const Dependencies& deps);

  // Makes the step after which plan.step optimizer steps are done, with the samples that follow
  // plan.position. The outcome is the same on all ranks. With kSkipped and kOverflowed, parameters,
  // buffers and optimizer do not change. An error or kRefused ends the session, and nothing that
  // the step has updated may be saved. Errors: the communicator's; those of reading and of the
  // model's code, with rank and samples; those of the update (update.h).
  absl::StatusOr<PendingStep> Run(const StepPlan& plan);

 private:
  // A micro-batch that this rank has run.
  struct MicroBatch {
    std::vector<int64_t> samples;
    double weight = 1;
    at::Tensor loss;  // a float32 scalar on the model's device
  };

  // FAILED_PRECONDITION: model code has frozen or unfrozen a parameter in this step.
  absl::Status CheckFlags(int64_t step) const;
  bool by_terms() const { return deps_.job->batch.uneven_inputs.divide_by == DivideBy::kSamples; }
  // Runs all micro-batches.
  absl::Status Accumulate(const StepPlan& plan, std::vector<MicroBatch>* ran);
  absl::Status ForwardBackward(const StepPlan& plan, int64_t micro_batch,
                               std::vector<int64_t> samples, std::vector<MicroBatch>* ran);
  // Returns the samples of this rank's micro-batch after this one, in this step or the next step;
  // empty if there is none.
  std::vector<int64_t> SamplesAfter(const StepPlan& plan, int64_t micro_batch) const;
  // Runs a micro-batch on a rank without input, whose part other ranks need in their forward and
  // backward passes.
  absl::Status JoinForwardBackward(int64_t step, int64_t micro_batch);
  // Returns the gradient of the scaled loss with respect to the loss.
  at::Tensor LossGradient(const at::Tensor& loss, double weight) const;
  // Reduces the gradients. With UpdatesEarly, also updates the parameters.
  absl::Status FinishBackward(double learning_rate);
  // Returns the result of a step whose losses and update are still numbers on the device.
  PendingStep Pending(std::vector<MicroBatch> ran, PendingUpdate update,
                      double learning_rate) const;

  const Dependencies deps_;
  // The all-reduce of loss terms in the newest step. They are members, so that Run can return an
  // error without waiting for the all-reduce: the other ranks must hear of the error first.
  at::Tensor terms_;
  std::unique_ptr<comm::Work> counting_;
  // The loss terms of a full micro-batch: the weight of a micro-batch is its terms divided by
  // full_terms_.
  const double full_terms_;
  ReadAhead reader_;  // reads the data set
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_STEP_STEP_H_
