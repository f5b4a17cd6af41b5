#include "worker/train/step/update.h"

#include <cmath>

#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/optim/clip.h"

namespace muster::train {
namespace {

PendingUpdate Done(const UpdateResult& result) {
  return {.numbers = {}, .result = [result](absl::Span<const double>) { return result; }};
}

// Removes the loss scale, divides and clips. False, on all ranks: a gradient is not finite.
absl::StatusOr<bool> PrepareGradients(const StepDependencies& deps, double divisor,
                                      UpdateResult* result) {
  const trace::Phase phase(deps.recorder, "norm and clipping");
  const auto& clip = deps.job->numerics.clip_grad_norm;
  const bool all = ChecksAllGradients(*deps.job);
  const double scale = deps.scaler != nullptr ? deps.scaler->inverse_scale() : 1.0;
  const auto factor = static_cast<float>(scale / divisor);
  const auto& pieces = deps.strategy->pieces();
  const auto& unused = deps.strategy->unused();
  if (factor != 1) optim::ScaleGradients(GradientsOf(pieces, unused, /*all=*/true), factor);
  const std::vector<at::Tensor> checked = GradientsOf(pieces, unused, all);
  ASSIGN_OR_RETURN(const at::Tensor sums,
                   deps.strategy->GatherSums(device::HostTensor(optim::SumOfSquares(checked))));
  const auto values = device::HostValues<double>(sums);
  std::vector<optim::SquareSum> by_rank;
  for (size_t i = 0; i < values.size(); i += 2) by_rank.push_back({values[i], values[i + 1]});
  const float norm = optim::NormOf(by_rank);
  if (!std::isfinite(norm)) return false;
  if (all) result->norm = norm;
  if (clip.has_value()) optim::ClipGradients(checked, norm, *clip);
  return true;
}

}  // namespace

bool UpdatesEarly(const Job& job) {
  return !ChecksAllGradients(job) && job.batch.uneven_inputs.divide_by != DivideBy::kSamples;
}

bool ChecksAllGradients(const Job& job) {
  return job.numerics.clip_grad_norm.has_value() || job.numerics.precision == Precision::kFloat16 ||
         job.numerics.on_nan != OnNan::kFail;
}

bool AdjustsLossScale(const StepDependencies& deps) {
  return deps.scaler != nullptr && (deps.trained == nullptr || deps.trained->any());
}

StepOutcome OutcomeOfNonFinite(const Job& job) {
  if (job.numerics.on_nan == OnNan::kSkipStep) return StepOutcome::kSkipped;
  return job.numerics.precision == Precision::kFloat16 ? StepOutcome::kOverflowed
                                                       : StepOutcome::kRefused;
}

std::vector<at::Tensor> GradientsOf(const std::vector<parallel::Piece>& pieces,
                                    const std::vector<at::Tensor>& unused, bool all) {
  std::vector<at::Tensor> gradients;
  const parallel::Piece* smallest = nullptr;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const parallel::Piece& piece = pieces[i];
    if (all) gradients.push_back(piece.tensor.grad());
    if (all || piece.tensor.numel() == 0) continue;
    if (unused[i].defined() && unused[i].is_cpu()) continue;
    if (smallest == nullptr || piece.tensor.numel() <= smallest->tensor.numel()) smallest = &piece;
  }
  if (smallest != nullptr) gradients.push_back(smallest->tensor.grad());
  return gradients;
}

absl::StatusOr<PendingUpdate> UpdateOnHost(const StepDependencies& deps, const UpdateStep& step) {
  UpdateResult result;
  const auto& unused = deps.strategy->unused();
  for (size_t i = 0; i < unused.size(); ++i) {
    if (unused[i].defined()) result.unused.push_back(deps.strategy->pieces()[i].parameter);
  }
  if (deps.scaler != nullptr) result.loss_scale = deps.scaler->scale();
  ASSIGN_OR_RETURN(bool finite, PrepareGradients(deps, step.divisor, &result));
  if (AdjustsLossScale(deps)) deps.scaler->Update(finite);
  if (finite) {
    const absl::Status buffers = deps.finite->CheckBuffers(step.number);
    finite = buffers.ok();
    // A smaller loss scale would not help, because the scale does not change the forward pass.
    if (!finite && deps.job->numerics.on_nan == OnNan::kFail) return buffers;
  }
  if (!finite) {
    deps.strategy->RestoreBuffers();
    result.outcome = OutcomeOfNonFinite(*deps.job);
    return Done(result);
  }
  if (!UpdatesEarly(*deps.job)) {
    const trace::Phase phase(deps.recorder, "optimizer");
    RETURN_IF_ERROR(deps.optimizer->Step(step.learning_rate, /*skip=*/{}, unused));
  }
  deps.strategy->FinishUpdate();
  return Done(result);
}

}  // namespace muster::train
