#include "worker/train/finite.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/item.h>
#include <ATen/ops/sum.h>

#include <cmath>

#include "absl/strings/str_cat.h"

namespace muster::train {

absl::Status CheckFinite(const models::Model& model, int64_t step) {
  for (const auto& parameter : model.Parameters()) {
    // One pass: a value that is not finite makes the sum so; float64, so that nothing else does.
    if (std::isfinite(at::sum(parameter.tensor.detach(), at::kDouble).item<double>())) continue;
    return absl::OutOfRangeError(
        absl::StrCat("after step ", step, " parameter '", parameter.name,
                     "' is not finite, so nothing is kept of it; look at the learning rate, "
                     "clip_grad_norm, and the data of that step"));
  }
  return absl::OkStatus();
}

}  // namespace muster::train
