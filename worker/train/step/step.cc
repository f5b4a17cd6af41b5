#include "worker/train/step/step.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/activity/activity.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/device/readback.h"
#include "worker/memory/memory_scope.h"
#include "worker/models/seed.h"
#include "worker/optim/schedule.h"
#include "worker/train/job/numbered.h"
#include "worker/train/ranks/failure.h"
#include "worker/train/ranks/guarded.h"
#include "worker/train/step/autocast.h"

namespace muster::train {
namespace {

// Returns the place of an error as text.
std::string Who(int64_t rank, int64_t micro_batch, const std::vector<int64_t>& samples) {
  return absl::StrCat("rank ", rank, ", micro-batch ", micro_batch, ", ",
                      SamplesOf("data.train", samples));
}

// Adds `who` to an error, but not to a communicator's error, which has another cause.
absl::Status Of(const std::string& who, const absl::Status& status) {
  return Classify(status, Phase::kRun) == FailureKind::kConsequence ? status
                                                                    : Annotate(status, who);
}

double FullTerms(const Job& job, const models::InputSpec& input) {
  return static_cast<double>(job.batch.per_rank * input.TargetsOfSample());
}

}  // namespace

Stepper::Stepper(const Dependencies& deps)
    : deps_(deps),
      full_terms_(FullTerms(*deps.job, deps.model->Input())),
      reader_(deps.dataset, deps.device, deps.model->Input().ignored) {}

absl::Status Stepper::CheckFlags(int64_t step) const {
  if (deps_.trained == nullptr) return absl::OkStatus();
  const int64_t flipped = deps_.trained->FirstFlipped();
  if (flipped < 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", deps_.rank, ": model code has ",
                   deps_.trained->in_force()[flipped] ? "frozen" : "unfrozen", " parameter '",
                   deps_.trained->name(flipped), "' in step ", step,
                   "; only the step hook may do that, between two steps"));
}

std::vector<int64_t> Stepper::SamplesAfter(const StepPlan& plan, int64_t micro_batch) const {
  data::Sampler& sampler = *deps_.sampler;
  data::Position position = plan.position;
  if (++micro_batch >= sampler.ShareOf(position, deps_.rank).micro_batches) {
    micro_batch = 0;
    position = sampler.After(position);
    if (sampler.ShareOf(position, deps_.rank).micro_batches == 0) return {};
  }
  return sampler.Samples(position, deps_.rank, micro_batch);
}

// A loss that is not finite starts the backward pass with NaN, because 0 x loss is NaN. So the
// gradients of all ranks show such a loss, whatever its derivative is. The host does not read the
// loss, so nothing waits for a device.
at::Tensor Stepper::LossGradient(const at::Tensor& loss, double weight) const {
  const at::Tensor zero = loss.detach().mul(0);
  if (deps_.scaler == nullptr) return zero.add(weight);
  if (deps_.device.is_cpu()) return zero.add(deps_.scaler->scale() * weight);
  return zero.add(deps_.scaler->scale_on_device(), weight);
}

absl::Status Stepper::ForwardBackward(const StepPlan& plan, int64_t micro_batch,
                                      std::vector<int64_t> samples, std::vector<MicroBatch>* ran) {
  const memory::MemoryScope scope(memory::Purpose::kActivations);
  models::Reseed(deps_.context->generator(),
                 models::SeedForForward(deps_.job->seed, plan.step, micro_batch, deps_.rank));
  ASSIGN_OR_RETURN(const data::Batch batch, reader_.Read(samples));
  reader_.Begin(SamplesAfter(plan, micro_batch));
  at::Tensor loss;
  double weight = 1;
  {
    const trace::Phase phase(deps_.recorder, "forward");
    const AutocastScope autocast(deps_.job->numerics.precision, deps_.device.type());
    const models::LossOutput output = deps_.model->Loss(batch, *deps_.context);
    loss = output.mean_loss.to(at::kFloat);
    if (by_terms()) weight = static_cast<double>(output.terms) / full_terms_;
  }
  activity::Moved();
  // Without trained parameters there is no backward pass.
  if (loss.requires_grad()) {
    const trace::Phase phase(deps_.recorder, "backward");
    loss.backward(LossGradient(loss, weight));
  }
  activity::Moved();
  ran->push_back({std::move(samples), weight, loss.detach()});
  return absl::OkStatus();
}

absl::Status Stepper::JoinForwardBackward(int64_t step, int64_t micro_batch) {
  const memory::MemoryScope scope(memory::Purpose::kActivations);
  models::Reseed(deps_.context->generator(),
                 models::SeedForForward(deps_.job->seed, step, micro_batch, deps_.rank));
  const data::Batch batch = reader_.Blank(deps_.job->batch.per_rank);
  at::Tensor loss;
  {
    const trace::Phase phase(deps_.recorder, "forward, joined");
    const AutocastScope autocast(deps_.job->numerics.precision, deps_.device.type());
    loss = deps_.model->Loss(batch, *deps_.context).mean_loss;
  }
  activity::Moved();
  if (!loss.requires_grad()) return absl::OkStatus();
  const trace::Phase phase(deps_.recorder, "backward, joined");
  loss.backward();
  activity::Moved();
  return absl::OkStatus();
}

absl::Status Stepper::Accumulate(const StepPlan& plan, std::vector<MicroBatch>* ran) {
  const int64_t own = deps_.sampler->ShareOf(plan.position, deps_.rank).micro_batches;
  // A rank without input in this step may have input in the next step, which may begin an epoch.
  if (own == 0) reader_.Begin(SamplesAfter(plan, -1));
  for (int64_t i = 0; i < plan.inputs.micro_batches; ++i) {
    const bool last = i + 1 == plan.inputs.micro_batches;
    if (i < own) {
      deps_.strategy->BeginMicroBatch(last);
      const auto samples = deps_.sampler->Samples(plan.position, deps_.rank, i);
      RETURN_IF_ERROR(Of(Who(deps_.rank, i, samples), Guarded("training", [&] {
                           return ForwardBackward(plan, i, samples, ran);
                         })));
    } else {
      deps_.strategy->BeginJoinedMicroBatch(last);
      if (!deps_.context->collective()) continue;
      RETURN_IF_ERROR(
          Of(absl::StrCat(
                 "rank ", deps_.rank,
                 ", which has no input and runs the model on zeros because the others wait for it"),
             Guarded("training", [&] { return JoinForwardBackward(plan.step, i); })));
    }
    RETURN_IF_ERROR(CheckFlags(plan.step));
  }
  return absl::OkStatus();
}

absl::Status Stepper::FinishBackward(double learning_rate) {
  const trace::Phase phase(deps_.recorder, "waiting for gradients");
  if (!UpdatesEarly(*deps_.job)) return deps_.strategy->FinishBackward();
  return deps_.strategy->FinishBackward([&](size_t bucket) {
    const trace::Phase update(deps_.recorder, "optimizer");
    return deps_.optimizer->StepBucket(bucket, learning_rate, deps_.strategy->unused());
  });
}

PendingStep Stepper::Pending(std::vector<MicroBatch> ran, PendingUpdate update,
                             double learning_rate) const {
  std::vector<at::Tensor> numbers;
  for (const MicroBatch& micro_batch : ran) numbers.push_back(micro_batch.loss);
  numbers.insert(numbers.end(), update.numbers.begin(), update.numbers.end());
  // `this` is not captured, because the stepper may be gone when the result is read.
  auto await = [rank = deps_.rank, ran = std::move(ran), result_of = std::move(update.result),
                learning_rate, read = device::Readback(numbers),
                communicators = deps_.communicators]() -> absl::StatusOr<StepResult> {
    const auto values = read.Await();
    // After an error of a collective, the numbers are meaningless.
    RETURN_IF_ERROR(communicators.failure());
    ASSIGN_OR_RETURN(const UpdateResult updated, result_of(values.subspan(ran.size())));
    StepResult result{.outcome = updated.outcome, .unused = updated.unused};
    for (size_t i = 0; i < ran.size(); ++i) {
      result.loss_sum += ran[i].weight * values[i];
      result.loss_weight += ran[i].weight;
      if (!std::isfinite(values[i]) && result.not_finite.empty()) {
        result.not_finite = Who(rank, static_cast<int64_t>(i), ran[i].samples);
      }
    }
    result.metrics.set_learning_rate(learning_rate);
    if (updated.norm.has_value()) result.metrics.set_grad_norm(*updated.norm);
    if (updated.loss_scale.has_value()) result.metrics.set_loss_scale(*updated.loss_scale);
    return result;
  };
  return {.late = !deps_.device.is_cpu(), .await = std::move(await)};
}

absl::StatusOr<PendingStep> Stepper::Run(const StepPlan& plan) {
  const int64_t step = plan.step;
  deps_.context->set_mode(models::Mode::kTrain);
  deps_.strategy->BeginStep({step, plan.inputs.divisor, plan.inputs.buffers_from});
  std::vector<MicroBatch> ran;
  RETURN_IF_ERROR(Accumulate(plan, &ran));
  // Overlaps with the reduction of gradients. Numbers of terms are exact in float64; their
  // quotients are nearly exact.
  if (by_terms()) {
    double weight = 0;
    for (const MicroBatch& micro_batch : ran) weight += micro_batch.weight;
    terms_ = at::full({1}, weight, at::kDouble);
    counting_ = deps_.control->AllReduceSum(terms_, {"loss terms", step});
  }
  const double learning_rate =
      plan.learning_rate * optim::LearningRateFactor(deps_.job->schedule, step - 1);
  RETURN_IF_ERROR(FinishBackward(learning_rate));
  double divisor = 1;
  if (by_terms()) {
    RETURN_IF_ERROR(counting_->Wait());
    const double terms = device::HostValues<double>(terms_)[0];
    if (terms > 0) divisor = terms;  // otherwise all gradients are zero
  }
  const auto make = deps_.device.is_cpu() ? UpdateOnHost : UpdateOnDevice;
  ASSIGN_OR_RETURN(PendingUpdate update, make(deps_, {step, learning_rate, divisor}));
  activity::Moved();
  return Pending(std::move(ran), std::move(update), learning_rate);
}

}  // namespace muster::train
