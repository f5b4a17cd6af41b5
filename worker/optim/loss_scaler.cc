#include "worker/optim/loss_scaler.h"

#include <cmath>

#include "ATen/ops/add.h"
#include "ATen/ops/full.h"
#include "ATen/ops/ge.h"
#include "ATen/ops/isfinite.h"
#include "ATen/ops/logical_and.h"
#include "ATen/ops/logical_not.h"
#include "ATen/ops/mul.h"
#include "ATen/ops/where.h"
#include "ATen/ops/zeros.h"
#include "c10/core/GradMode.h"
#include "worker/device/host_values.h"

namespace muster::optim {

LossScaler::LossScaler(const LossScaleOptions& options, c10::Device device)
    : options_(options),
      scale_(at::full({}, options.initial, at::TensorOptions(at::kFloat).device(device))),
      growth_tracker_(at::zeros({}, at::TensorOptions(at::kFloat).device(device))) {}

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

void LossScaler::UpdateOnDevice(const at::Tensor& finite) {
  const c10::NoGradGuard no_grad;
  const at::Tensor good_steps = growth_tracker_.add(1);
  const at::Tensor full = good_steps.ge(static_cast<double>(options_.growth_interval));
  const at::Tensor grown = scale_.mul(options_.growth_factor);
  const at::Tensor raised = at::where(full.logical_and(grown.isfinite()), grown, scale_);
  at::Tensor(scale_).copy_(at::where(finite, raised, scale_.mul(options_.backoff_factor)));
  at::Tensor(growth_tracker_).copy_(good_steps.mul(finite.logical_and(full.logical_not())));
}

std::vector<NamedTensor> LossScaler::State() {
  return {{.parameter = "scale", .slot = "scaler", .tensor = scale_},
          {.parameter = "growth_tracker", .slot = "scaler", .tensor = growth_tracker_}};
}

}  // namespace muster::optim
