#include "worker/train/step.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/item.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/memory/memory_scope.h"
#include "worker/models/seed.h"
#include "worker/optim/clip.h"
#include "worker/optim/schedule.h"
#include "worker/train/autocast.h"

namespace muster::train {
namespace {

using trace::Phase;

// The smallest gradient stands for all where going through all of them is not worth its time: what is not finite in
// a forward or backward reaches every parameter of a usual model. The last among equals is nearest to the loss.
at::Tensor Probe(const std::vector<parallel::Piece>& pieces) {
  at::Tensor smallest;
  for (const parallel::Piece& piece : pieces) {
    if (piece.tensor.numel() == 0) continue;
    if (!smallest.defined() || piece.tensor.numel() <= smallest.numel()) smallest = piece.tensor;
  }
  return smallest;
}

// The outcome of a step with a gradient that is not finite.
Outcome OutcomeOfNonFinite(OnNan on_nan, Precision precision) {
  if (on_nan == OnNan::kSkipStep) return Outcome::kSkipped;
  return precision == Precision::kFloat16 ? Outcome::kOverflowed : Outcome::kRefused;
}

}  // namespace

Stepper::Stepper(const Parts& parts)
    : parts_(parts),
      parameters_(parts.model->Parameters()),
      probe_(Probe(parts.strategy->pieces())) {}

absl::Status Stepper::CheckFlags(int64_t step) const {
  if (parts_.trained == nullptr) return absl::OkStatus();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor] = parameters_[i];
    if (tensor.requires_grad() == (*parts_.trained)[i]) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", parts_.rank, ": model code has ", tensor.requires_grad() ? "unfrozen" : "frozen",
        " parameter '", name, "' in step ", step, "; that is for the step hook, between two steps"));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Stepper::ForwardBackward(int64_t step, int64_t micro_batch,
                                                const data::Position& position) {
  const memory::MemoryScope scope(memory::Purpose::kActivations);
  models::Reseed(parts_.context->generator(),
                 models::SeedForForward(parts_.job->seed, step, micro_batch, parts_.rank));
  const auto samples = parts_.sampler->Samples(position, parts_.rank, micro_batch);
  ASSIGN_OR_RETURN(const data::Batch batch, parts_.dataset->Read(samples));
  at::Tensor loss;
  {
    const Phase phase(parts_.recorder, "forward");
    const AutocastScope autocast(parts_.job->precision);
    loss = parts_.model->Loss(batch, *parts_.context).mean_loss.to(at::kFloat);
  }
  // From a loss that is not finite backward starts with NaN (0 x loss is): so the gradients of all ranks say so,
  // whatever the derivative of the loss would be. Its value is asked for behind backward: a device need not be
  // waited for in between.
  const float scale = parts_.scaler != nullptr ? parts_.scaler->scale() : 1.0f;
  // Where nothing is trained there is nothing to go back to.
  if (!loss.requires_grad()) return loss.item<double>();
  const Phase phase(parts_.recorder, "backward");
  loss.backward(loss.detach().mul(0).add(scale));
  return loss.item<double>();
}

absl::StatusOr<bool> Stepper::PrepareGradients(StepResult* result) {
  const auto& clip = parts_.job->clip_grad_norm;
  const bool all = clip.has_value() || parts_.scaler != nullptr || parts_.job->on_nan != OnNan::kFail;
  std::vector<at::Tensor> gradients;
  if (all) {
    for (const parallel::Piece& piece : parts_.strategy->pieces()) {
      gradients.push_back(piece.tensor.grad());
    }
  } else if (probe_.defined()) {
    gradients.push_back(probe_.grad());
  }
  if (parts_.scaler != nullptr) optim::ScaleGradients(gradients, parts_.scaler->inverse_scale());
  ASSIGN_OR_RETURN(const auto sums,
                   parts_.strategy->GatherSums(optim::SumOfSquares(gradients)));
  const float norm = optim::NormOf(sums);
  if (!std::isfinite(norm)) return false;
  if (all) result->grad_norm = norm;
  if (clip.has_value()) optim::ClipGradients(gradients, norm, *clip);
  return true;
}

absl::StatusOr<StepResult> Stepper::Run(int64_t step, const data::Position& position,
                                        double divisor, double learning_rate) {
  const int64_t accumulate = parts_.job->batch.accumulate;
  StepResult result;
  parts_.context->set_mode(models::Mode::kTrain);
  parts_.strategy->BeginStep(step, divisor);
  for (int64_t micro_batch = 0; micro_batch < accumulate; ++micro_batch) {
    parts_.strategy->BeginMicroBatch(/*last=*/micro_batch + 1 == accumulate);
    ASSIGN_OR_RETURN(const double loss, ForwardBackward(step, micro_batch, position));
    result.loss_sum += loss;
    RETURN_IF_ERROR(CheckFlags(step));
  }
  {
    const Phase phase(parts_.recorder, "waiting for gradients");
    RETURN_IF_ERROR(parts_.strategy->FinishBackward());
  }

  result.learning_rate =
      learning_rate * optim::LearningRateFactor(parts_.job->schedule, step - 1);
  if (parts_.scaler != nullptr) result.loss_scale = parts_.scaler->scale();
  // The same on every rank: they tell each other of their pieces, and the buffers that all go on with are the same
  // bits everywhere.
  ASSIGN_OR_RETURN(bool finite, [&] {
    const Phase phase(parts_.recorder, "norm and clipping");
    return PrepareGradients(&result);
  }());
  // Where nothing is trained, no gradient says anything of the scale.
  const bool scales = parts_.scaler != nullptr &&
                      (parts_.trained == nullptr ||
                       std::find(parts_.trained->begin(), parts_.trained->end(), true) != parts_.trained->end());
  if (scales) parts_.scaler->Update(finite);
  if (finite) {
    const absl::Status buffers = parts_.finite->CheckBuffers(step);
    finite = buffers.ok();
    // No loss scale answers for a forward.
    if (!finite && parts_.job->on_nan == OnNan::kFail) return buffers;
  }
  if (!finite) {
    parts_.strategy->RestoreBuffers();
    result.outcome = OutcomeOfNonFinite(parts_.job->on_nan, parts_.job->precision);
    return result;
  }
  const Phase phase(parts_.recorder, "optimizer");
  RETURN_IF_ERROR(parts_.optimizer->Step(result.learning_rate));
  parts_.strategy->FinishUpdate();
  return result;
}

}  // namespace muster::train
