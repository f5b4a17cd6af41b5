#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sum.h>
#include <c10/core/GradMode.h>


#include "common/status/status.h"
#include "worker/optim/clip.h"
#include "worker/train/step/update.h"

namespace muster::train {
namespace {

absl::StatusOr<UpdateResult> ResultOf(const StepDependencies& deps, bool all, int64_t step,
                                      absl::Span<const double> numbers) {
  UpdateResult result;
  bool finite = numbers[1] != 0;
  if (finite && all) result.norm = static_cast<float>(numbers[0]);
  numbers.remove_prefix(2);
  if (deps.scaler != nullptr) {
    result.loss_scale = static_cast<float>(numbers.back());
    numbers.remove_suffix(1);
  }
  if (finite) {
    const absl::Status buffers = deps.finite->CheckLargest(numbers, step);
    finite = buffers.ok();
    // A smaller loss scale would not help, because the scale does not change the forward pass.
    if (!finite && deps.job->numerics.on_nan == OnNan::kFail) return buffers;
  }
  if (!finite) result.outcome = OutcomeOfNonFinite(*deps.job);
  return result;
}

}  // namespace

absl::StatusOr<PendingUpdate> UpdateOnDevice(const StepDependencies& deps, const UpdateStep& step) {
  const c10::NoGradGuard no_grad;
  const auto on_device = at::TensorOptions(at::kDouble).device(deps.device);
  const auto& clip = deps.job->numerics.clip_grad_norm;
  const bool all = ChecksAllGradients(*deps.job);
  const bool divides = deps.scaler != nullptr || step.divisor != 1;
  const auto& pieces = deps.strategy->pieces();
  const std::vector<at::Tensor>& unused = deps.strategy->unused();

  // The factor for the gradients.
  at::Tensor factor = at::full({}, 1 / step.divisor, on_device);
  at::Tensor loss_scale;
  if (deps.scaler != nullptr) {
    loss_scale = deps.scaler->scale_on_device().clone();
    factor = factor.mul(loss_scale.reciprocal());
  }
  at::Tensor norm;
  {
    const trace::Phase phase(deps.recorder, "norm and clipping");
    const at::Tensor mine = optim::SumOfSquaresOn(deps.device, GradientsOf(pieces, unused, all));
    ASSIGN_OR_RETURN(const at::Tensor sums, deps.strategy->GatherSums(mine.view({1})));
    // The norm is rounded once, as on the CPU. A norm too large for float32 is not finite.
    norm = sums.sum().sqrt().mul(factor).to(at::kFloat).to(at::kDouble);
    if (clip.has_value()) factor = factor.mul(optim::ClipFactor(norm, *clip));
    if (divides || clip.has_value()) {
      optim::ScaleGradientsBy(factor, GradientsOf(pieces, unused, /*all=*/true));
    }
  }
  at::Tensor finite = norm.isfinite();
  if (AdjustsLossScale(deps)) deps.scaler->UpdateOnDevice(finite);

  PendingUpdate update{.numbers = {norm, finite}, .result = {}};
  const at::Tensor buffers = deps.finite->LargestOfBuffers();
  if (buffers.defined()) {
    finite = finite.logical_and(buffers.isfinite().all());
    update.numbers.push_back(buffers);
  }
  if (loss_scale.defined()) update.numbers.push_back(loss_scale);
  // The parameters for which the last numbers say whether they are unused.
  std::vector<size_t> looked_at;
  for (size_t i = 0; i < unused.size(); ++i) {
    if (!unused[i].defined()) continue;
    looked_at.push_back(pieces[i].parameter);
    update.numbers.push_back(unused[i]);
  }

  const at::Tensor skip = finite.logical_not().to(at::kFloat);
  const bool left_out = OutcomeOfNonFinite(*deps.job) != StepOutcome::kRefused;
  if (left_out) deps.strategy->RestoreBuffersIf(skip);
  if (!UpdatesEarly(*deps.job)) {
    const trace::Phase phase(deps.recorder, "optimizer");
    RETURN_IF_ERROR(deps.optimizer->Step(step.learning_rate, skip, unused));
  }
  deps.strategy->FinishUpdate();
  // The function has a copy of `deps`, because the stepper may be gone when the numbers are read.
  update.result = [deps, all, step = step.number,
                   looked_at](absl::Span<const double> numbers) -> absl::StatusOr<UpdateResult> {
    const auto flags = numbers.last(looked_at.size());
    numbers.remove_suffix(looked_at.size());
    ASSIGN_OR_RETURN(UpdateResult result, ResultOf(deps, all, step, numbers));
    for (size_t i = 0; i < flags.size(); ++i) {
      if (flags[i] != 0) result.unused.push_back(looked_at[i]);
    }
    return result;
  };
  return update;
}

}  // namespace muster::train
