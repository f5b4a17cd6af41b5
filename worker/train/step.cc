#include "worker/train/step.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/item.h>

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/models/seed.h"
#include "worker/optim/clip.h"
#include "worker/optim/schedule.h"

namespace muster::train {

Stepper::Stepper(const Parts& parts) : parts_(parts), parameters_(parts.model->Parameters()) {}

absl::StatusOr<double> Stepper::ForwardBackward(int64_t step, int64_t micro_batch,
                                                const data::Position& position) {
  models::Reseed(parts_.context->generator(),
                 models::SeedForForward(parts_.job->seed, step, micro_batch, parts_.rank));
  const auto samples = parts_.sampler->Samples(position, parts_.rank, micro_batch);
  ASSIGN_OR_RETURN(const data::Batch batch, parts_.dataset->Read(samples));
  const at::Tensor loss = parts_.model->Loss(batch, *parts_.context).mean_loss;
  loss.backward();
  return loss.item<double>();
}

absl::StatusOr<StepResult> Stepper::Run(int64_t step, const data::Position& position,
                                        double divisor) {
  const int64_t accumulate = parts_.job->batch.accumulate;
  StepResult result;
  parts_.context->set_mode(models::Mode::kTrain);
  parts_.ddp->BeginStep(step, divisor);
  for (int64_t micro_batch = 0; micro_batch < accumulate; ++micro_batch) {
    parts_.ddp->BeginMicroBatch(/*last=*/micro_batch + 1 == accumulate);
    ASSIGN_OR_RETURN(const double loss, ForwardBackward(step, micro_batch, position));
    result.loss_sum += loss;
  }
  RETURN_IF_ERROR(parts_.ddp->FinishBackward());

  if (parts_.job->clip_grad_norm.has_value()) {
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : parameters_) gradients.push_back(parameter.tensor.grad());
    result.grad_norm = optim::ClipGradientNorm(gradients, *parts_.job->clip_grad_norm);
    if (!std::isfinite(*result.grad_norm)) {
      return absl::OutOfRangeError(absl::StrCat(
          "the gradient norm of step ", step, " is not finite (", *result.grad_norm,
          "); nothing was updated; look at the learning rate and the data of that step"));
    }
  }
  result.learning_rate = parts_.job->optimizer->lr *
                         optim::LearningRateFactor(parts_.job->schedule, step - 1);
  RETURN_IF_ERROR(parts_.optimizer->Step(result.learning_rate));
  return result;
}

}  // namespace muster::train
