#include "worker/train/finite.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/data/not_finite.h"

namespace muster::train {
namespace {

bool IsFinite(const at::Tensor& tensor) {
  return tensor.scalar_type() != at::kFloat ||
         !data::FirstNotFinite(tensor.const_data_ptr<float>(), tensor.numel()).has_value();
}

absl::Status CheckOne(const char* what, const std::string& name, const at::Tensor& tensor,
                      int64_t step) {
  if (IsFinite(tensor)) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("after step ", step, " ", what, " '", name,
                   "' is not finite, so nothing is kept of it; look at the learning rate, "
                   "clip_grad_norm, and the data of that step"));
}

}  // namespace

FiniteCheck::FiniteCheck(const models::Model& model) : model_(model) {
  for (models::Buffer buffer : model.Buffers()) {
    if (IsFinite(buffer.tensor)) buffers_.push_back(std::move(buffer));
  }
}

absl::Status FiniteCheck::Check(int64_t step) const {
  for (const auto& [name, tensor] : model_.Parameters()) {
    RETURN_IF_ERROR(CheckOne("parameter", name, tensor, step));
  }
  return CheckBuffers(step);
}

absl::Status FiniteCheck::CheckBuffers(int64_t step) const {
  for (const auto& [name, tensor] : buffers_) {
    RETURN_IF_ERROR(CheckOne("buffer", name, tensor, step));
  }
  return absl::OkStatus();
}

}  // namespace muster::train
