#include "worker/train/step/update.h"

namespace muster::train {

bool UpdatesEarly(const Job& job) {
  return !ChecksAllGradients(job) && job.batch.uneven_inputs.divide_by != DivideBy::kSamples;
}

bool ChecksAllGradients(const Job& job) {
  return job.numerics.clip_grad_norm.has_value() || job.numerics.precision == Precision::kFloat16 ||
         job.numerics.on_nan != OnNan::kFail;
}

bool AdjustsLossScale(const StepParts& parts) {
  return parts.scaler != nullptr && (parts.trained == nullptr || parts.trained->any());
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

}  // namespace muster::train
