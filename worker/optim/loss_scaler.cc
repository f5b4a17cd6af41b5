#include "worker/optim/loss_scaler.h"

#include <cmath>

#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "worker/device/host_values.h"

namespace muster::optim {

LossScaler::LossScaler(const LossScaleOptions& options)
    : options_(options),
      scale_(at::full({}, options.initial, at::TensorOptions(at::kFloat))),
      growth_tracker_(at::zeros({}, at::TensorOptions(at::kFloat))) {}

float LossScaler::scale() const { return device::HostValues<float>(scale_)[0]; }

float LossScaler::inverse_scale() const {
  return static_cast<float>(1.0 / static_cast<double>(scale()));
}

void LossScaler::Update(bool finite) {
  float& scale = device::MutableHostValues<float>(scale_)[0];
  float& good_steps = device::MutableHostValues<float>(growth_tracker_)[0];
  if (!finite) {
    scale = static_cast<float>(scale * options_.backoff_factor);
    good_steps = 0;
    return;
  }
  good_steps += 1;
  if (good_steps < static_cast<double>(options_.growth_interval)) return;
  const float grown = static_cast<float>(scale * options_.growth_factor);
  if (std::isfinite(grown)) scale = grown;
  good_steps = 0;
}

std::vector<NamedTensor> LossScaler::State() {
  return {{.parameter = "scale", .slot = "scaler", .tensor = scale_},
          {.parameter = "growth_tracker", .slot = "scaler", .tensor = growth_tracker_}};
}

}  // namespace muster::optim
