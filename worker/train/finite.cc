#include "worker/train/finite.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/item.h>
#include <ATen/ops/sum.h>

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"

namespace muster::train {
namespace {

absl::Status Check(const char* what, const std::string& name, const at::Tensor& tensor,
                   int64_t step) {
  // One pass: a value that is not finite makes the sum so; float64, so that nothing else does.
  if (std::isfinite(at::sum(tensor.detach(), at::kDouble).item<double>())) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("after step ", step, " ", what, " '", name,
                   "' is not finite, so nothing is kept of it; look at the learning rate, "
                   "clip_grad_norm, and the data of that step"));
}

}  // namespace

absl::Status CheckFinite(const models::Model& model, int64_t step) {
  for (const auto& [name, tensor] : model.Parameters()) {
    RETURN_IF_ERROR(Check("parameter", name, tensor, step));
  }
  for (const auto& [name, tensor] : model.Buffers()) {
    RETURN_IF_ERROR(Check("buffer", name, tensor, step));
  }
  return absl::OkStatus();
}

}  // namespace muster::train
