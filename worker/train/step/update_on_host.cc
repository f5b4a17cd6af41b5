#include <cmath>

#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/optim/clip.h"
#include "worker/train/step/update.h"

namespace muster::train {
namespace {

class HostUpdate : public Update {
 public:
  explicit HostUpdate(const Parts& parts) : parts_(parts) {}

  absl::StatusOr<PendingUpdate> Run(const Step& step) override {
    UpdateResult result;
    const auto& unused = parts_.strategy->unused();
    for (size_t i = 0; i < unused.size(); ++i) {
      if (unused[i].defined()) result.unused.push_back(parts_.strategy->pieces()[i].parameter);
    }
    if (parts_.scaler != nullptr) result.loss_scale = parts_.scaler->scale();
    ASSIGN_OR_RETURN(bool finite, [&] {
      const trace::Phase phase(parts_.recorder, "norm and clipping");
      return PrepareGradients(step.divisor, &result);
    }());
    if (AdjustsLossScale(parts_)) parts_.scaler->Update(finite);
    if (finite) {
      const absl::Status buffers = parts_.finite->CheckBuffers(step.number);
      finite = buffers.ok();
      // The loss scale does not change the forward pass, so a smaller one would not help.
      if (!finite && parts_.job->numerics.on_nan == OnNan::kFail) return buffers;
    }
    if (!finite) {
      parts_.strategy->RestoreBuffers();
      result.outcome = OutcomeOfNonFinite(*parts_.job);
      return Done(result);
    }
    if (!UpdatesEarly(*parts_.job)) {
      const trace::Phase phase(parts_.recorder, "optimizer");
      RETURN_IF_ERROR(parts_.optimizer->Step(step.learning_rate, /*skip=*/{}, unused));
    }
    parts_.strategy->FinishUpdate();
    return Done(result);
  }

 private:
  static PendingUpdate Done(const UpdateResult& result) {
    return {.numbers = {}, .result = [result](absl::Span<const double>) { return result; }};
  }

  // Removes the loss scale, divides and clips. False, on all ranks: a gradient is not finite.
  absl::StatusOr<bool> PrepareGradients(double divisor, UpdateResult* result) {
    const auto& clip = parts_.job->numerics.clip_grad_norm;
    const bool all = ChecksAllGradients(*parts_.job);
    const double scale = parts_.scaler != nullptr ? parts_.scaler->inverse_scale() : 1.0;
    const auto factor = static_cast<float>(scale / divisor);
    const auto& pieces = parts_.strategy->pieces();
    const auto& unused = parts_.strategy->unused();
    if (factor != 1) optim::ScaleGradients(GradientsOf(pieces, unused, /*all=*/true), factor);
    const std::vector<at::Tensor> checked = GradientsOf(pieces, unused, all);
    ASSIGN_OR_RETURN(const at::Tensor sums,
                     parts_.strategy->GatherSums(device::HostTensor(optim::SumOfSquares(checked))));
    const auto values = device::HostValues<double>(sums);
    std::vector<optim::SquareSum> by_rank;
    for (size_t i = 0; i < values.size(); i += 2) by_rank.push_back({values[i], values[i + 1]});
    const float norm = optim::NormOf(by_rank);
    if (!std::isfinite(norm)) return false;
    if (all) result->norm = norm;
    if (clip.has_value()) optim::ClipGradients(checked, norm, *clip);
    return true;
  }

  const Parts parts_;
};

}  // namespace

std::unique_ptr<Update> UpdateOnHost(const Update::Parts& parts) {
  return std::make_unique<HostUpdate>(parts);
}

}  // namespace muster::train
