#include "worker/train/step.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/item.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/memory/memory_scope.h"
#include "worker/models/seed.h"
#include "worker/optim/clip.h"
#include "worker/optim/schedule.h"
#include "worker/train/autocast.h"
#include "worker/train/failure.h"
#include "worker/train/guarded.h"
#include "worker/train/numbered.h"

namespace muster::train {
namespace {

// The piece whose gradient is checked if checking all gradients would take too long: a value that
// is not finite in a forward or backward pass reaches every parameter of a usual model. It is the
// smallest piece; of equally small ones the last, which is nearest to the loss.
at::Tensor Probe(const std::vector<parallel::Piece>& pieces) {
  at::Tensor smallest;
  for (const parallel::Piece& piece : pieces) {
    if (piece.tensor.numel() == 0) continue;
    if (!smallest.defined() || piece.tensor.numel() <= smallest.numel()) smallest = piece.tensor;
  }
  return smallest;
}

// The outcome of a step with a gradient that is not finite.
StepOutcome OutcomeOfNonFinite(OnNan on_nan, Precision precision) {
  if (on_nan == OnNan::kSkipStep) return StepOutcome::kSkipped;
  return precision == Precision::kFloat16 ? StepOutcome::kOverflowed : StepOutcome::kRefused;
}

// Where an error occurred, as text.
std::string Who(int64_t rank, int64_t micro_batch, const std::vector<int64_t>& samples) {
  return absl::StrCat("rank ", rank, ", micro-batch ", micro_batch, ", ",
                      SamplesOf("data.train", samples));
}

// Adds `who` to an error, except to one of the communicator, which is not this rank's fault.
absl::Status Of(const std::string& who, const absl::Status& status) {
  return Classify(status, Phase::kRun) == FailureKind::kConsequence ? status
                                                                    : Annotate(status, who);
}

double FullTerms(const Job& job, const models::InputSpec& input) {
  const int64_t of_sample = input.kind == models::InputSpec::Kind::kTokens
                                ? input.context
                                : std::max<int64_t>(input.target_numbers, 1);
  return static_cast<double>(job.batch.per_rank * of_sample);
}

}  // namespace

Stepper::Stepper(const Parts& parts)
    : parts_(parts),
      full_terms_(FullTerms(*parts.job, parts.model->Input())),
      probe_(Probe(parts.strategy->pieces())),
      reader_(parts.dataset, parts.device) {}

absl::Status Stepper::CheckFlags(int64_t step) const {
  if (parts_.trained == nullptr) return absl::OkStatus();
  const int64_t flipped = parts_.trained->FirstFlipped();
  if (flipped < 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", parts_.rank, ": model code has ",
                   parts_.trained->in_force()[flipped] ? "frozen" : "unfrozen", " parameter '",
                   parts_.trained->name(flipped), "' in step ", step,
                   "; only the step hook may do that, between two steps"));
}

std::vector<int64_t> Stepper::SamplesAfter(const StepPlan& plan, int64_t micro_batch) const {
  data::Sampler& sampler = *parts_.sampler;
  data::Position position = plan.position;
  if (++micro_batch >= sampler.ShareOf(position, parts_.rank).micro_batches) {
    micro_batch = 0;
    position = sampler.After(position);
    if (sampler.ShareOf(position, parts_.rank).micro_batches == 0) return {};
  }
  return sampler.Samples(position, parts_.rank, micro_batch);
}

absl::Status Stepper::ForwardBackward(const StepPlan& plan, int64_t micro_batch,
                                      const std::vector<int64_t>& samples, StepResult* result) {
  const memory::MemoryScope scope(memory::Purpose::kActivations);
  models::Reseed(parts_.context->generator(),
                 models::SeedForForward(parts_.job->seed, plan.step, micro_batch, parts_.rank));
  ASSIGN_OR_RETURN(const data::Batch batch, reader_.Read(samples));
  reader_.Begin(SamplesAfter(plan, micro_batch));
  at::Tensor loss;
  double weight = 1;
  {
    const trace::Phase phase(parts_.recorder, "forward");
    const AutocastScope autocast(parts_.job->precision, parts_.device.type());
    const models::LossOutput output = parts_.model->Loss(batch, *parts_.context);
    loss = output.mean_loss.to(at::kFloat);
    if (by_terms()) weight = static_cast<double>(output.terms) / full_terms_;
  }
  activity::Moved();
  // If the loss is not finite, the backward pass starts with NaN, because 0 x loss is NaN. So the
  // gradients of all ranks show it, whatever the derivative of the loss would be. The value of the
  // loss is read after the backward pass, so that nothing waits for a device in between.
  const double scale = parts_.scaler != nullptr ? parts_.scaler->scale() : 1.0;
  // If nothing is trained, there is no backward pass.
  if (loss.requires_grad()) {
    const trace::Phase phase(parts_.recorder, "backward");
    loss.backward(loss.detach().mul(0).add(scale * weight));
  }
  const double value = loss.item<double>();
  activity::Moved();
  result->loss_sum += weight * value;
  result->loss_weight += weight;
  if (!std::isfinite(value) && result->not_finite.empty()) {
    result->not_finite = Who(parts_.rank, micro_batch, samples);
  }
  return absl::OkStatus();
}

absl::Status Stepper::JoinForwardBackward(int64_t step, int64_t micro_batch) {
  const memory::MemoryScope scope(memory::Purpose::kActivations);
  models::Reseed(parts_.context->generator(),
                 models::SeedForForward(parts_.job->seed, step, micro_batch, parts_.rank));
  const data::Batch batch = reader_.Blank(parts_.job->batch.per_rank);
  at::Tensor loss;
  {
    const trace::Phase phase(parts_.recorder, "forward, joined");
    const AutocastScope autocast(parts_.job->precision, parts_.device.type());
    loss = parts_.model->Loss(batch, *parts_.context).mean_loss;
  }
  activity::Moved();
  if (!loss.requires_grad()) return absl::OkStatus();
  const trace::Phase phase(parts_.recorder, "backward, joined");
  loss.backward();
  activity::Moved();
  return absl::OkStatus();
}

absl::Status Stepper::Accumulate(const StepPlan& plan, StepResult* result) {
  const int64_t own = parts_.sampler->ShareOf(plan.position, parts_.rank).micro_batches;
  for (int64_t i = 0; i < plan.inputs.micro_batches; ++i) {
    const bool last = i + 1 == plan.inputs.micro_batches;
    if (i < own) {
      parts_.strategy->BeginMicroBatch(last);
      const auto samples = parts_.sampler->Samples(plan.position, parts_.rank, i);
      RETURN_IF_ERROR(Of(Who(parts_.rank, i, samples), Guarded("training", [&] {
                           return ForwardBackward(plan, i, samples, result);
                         })));
    } else {
      parts_.strategy->BeginJoinedMicroBatch(last);
      if (!parts_.context->collective()) continue;
      RETURN_IF_ERROR(
          Of(absl::StrCat(
                 "rank ", parts_.rank,
                 ", which has no input and runs the model on zeros because the others wait for it"),
             Guarded("training", [&] { return JoinForwardBackward(plan.step, i); })));
    }
    RETURN_IF_ERROR(CheckFlags(plan.step));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Stepper::PrepareGradients(double terms, StepResult* result) {
  const auto& clip = parts_.job->clip_grad_norm;
  const bool all =
      clip.has_value() || parts_.scaler != nullptr || parts_.job->on_nan != OnNan::kFail;
  const double scale = parts_.scaler != nullptr ? parts_.scaler->inverse_scale() : 1.0;
  const auto factor = static_cast<float>(scale / terms);
  std::vector<at::Tensor> gradients;
  if (all || factor != 1) {
    for (const parallel::Piece& piece : parts_.strategy->pieces()) {
      gradients.push_back(piece.tensor.grad());
    }
  }
  if (factor != 1) optim::ScaleGradients(gradients, factor);
  if (!all) {
    gradients.clear();
    if (probe_.defined()) gradients.push_back(probe_.grad());
  }
  ASSIGN_OR_RETURN(const auto sums, parts_.strategy->GatherSums(optim::SumOfSquares(gradients)));
  const float norm = optim::NormOf(sums);
  if (!std::isfinite(norm)) return false;
  if (all) result->metrics.set_grad_norm(norm);
  if (clip.has_value()) optim::ClipGradients(gradients, norm, *clip);
  return true;
}

bool Stepper::updates_early() const {
  return !parts_.job->clip_grad_norm.has_value() && parts_.scaler == nullptr &&
         parts_.job->on_nan == OnNan::kFail && !by_terms();
}

absl::Status Stepper::FinishBackward(double learning_rate) {
  const trace::Phase phase(parts_.recorder, "waiting for gradients");
  if (!updates_early()) return parts_.strategy->FinishBackward();
  return parts_.strategy->FinishBackward([&](size_t bucket) {
    const trace::Phase update(parts_.recorder, "optimizer");
    return parts_.optimizer->StepBucket(bucket, learning_rate);
  });
}

absl::StatusOr<StepResult> Stepper::Run(const StepPlan& plan) {
  const int64_t step = plan.step;
  StepResult result;
  parts_.context->set_mode(models::Mode::kTrain);
  parts_.strategy->BeginStep({step, plan.inputs.divisor, plan.inputs.buffers_from});
  RETURN_IF_ERROR(Accumulate(plan, &result));
  // Runs while gradients are still being reduced. Numbers of terms are exact in float64, their
  // quotients nearly so.
  if (by_terms()) {
    terms_ = at::full({1}, result.loss_weight, at::kDouble);
    counting_ = parts_.control->AllReduceSum(terms_, {"loss terms", step});
  }
  const double learning_rate =
      plan.learning_rate * optim::LearningRateFactor(parts_.job->schedule, step - 1);
  result.metrics.set_learning_rate(learning_rate);
  RETURN_IF_ERROR(FinishBackward(learning_rate));
  double divisor = 1;
  if (by_terms()) {
    RETURN_IF_ERROR(counting_->Wait());
    const double terms = device::HostValues<double>(terms_)[0];
    if (terms > 0) divisor = terms;  // else all gradients are zero
  }

  if (parts_.scaler != nullptr) result.metrics.set_loss_scale(parts_.scaler->scale());
  // The result is the same on every rank: the ranks exchange the sums of their pieces, and the
  // buffers with which all continue are bitwise equal.
  ASSIGN_OR_RETURN(bool finite, [&] {
    const trace::Phase phase(parts_.recorder, "norm and clipping");
    return PrepareGradients(divisor, &result);
  }());
  // If nothing is trained, no gradient shows whether the scale fits.
  const bool scales =
      parts_.scaler != nullptr && (parts_.trained == nullptr || parts_.trained->any());
  if (scales) parts_.scaler->Update(finite);
  if (finite) {
    const absl::Status buffers = parts_.finite->CheckBuffers(step);
    finite = buffers.ok();
    // The loss scale does not change the forward pass, so a smaller one would not help.
    if (!finite && parts_.job->on_nan == OnNan::kFail) return buffers;
  }
  if (!finite) {
    parts_.strategy->RestoreBuffers();
    result.outcome = OutcomeOfNonFinite(parts_.job->on_nan, parts_.job->precision);
    return result;
  }
  if (!updates_early()) {
    const trace::Phase phase(parts_.recorder, "optimizer");
    RETURN_IF_ERROR(parts_.optimizer->Step(learning_rate));
  }
  activity::Moved();
  parts_.strategy->FinishUpdate();
  return result;
}

}  // namespace muster::train
