#include "worker/train/finite.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/all.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/item.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/data/not_finite.h"
#include "worker/device/host_values.h"

namespace muster::train {
namespace {

bool IsFinite(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat) return true;
  if (!tensor.is_cpu()) return at::isfinite(tensor).all().item<bool>();
  const auto values = device::HostValues<float>(tensor);
  return !data::FirstNotFinite(values.data(), tensor.numel()).has_value();
}

absl::Status CheckOne(const char* what, const std::string& name, const at::Tensor& tensor,
                      int64_t step) {
  if (IsFinite(tensor)) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("after step ", step, " ", what, " '", name,
                   "' is not finite, so nothing of this step is saved; check the learning rate, "
                   "clip_grad_norm, and the data of that step"));
}

}  // namespace

FiniteCheck::FiniteCheck(const models::Model& model) : model_(model) {
  for (models::Buffer buffer : model.Buffers()) {
    if (IsFinite(buffer.tensor)) buffers_.push_back(std::move(buffer));
  }
}

absl::Status FiniteCheck::Check(int64_t step, parallel::Strategy* strategy) const {
  const auto parameters = model_.Parameters();
  if (strategy != nullptr && strategy->shards() != nullptr) {
    RETURN_IF_ERROR(CheckShards(step, parameters, *strategy));
  } else {
    for (const auto& [name, tensor] : parameters) {
      RETURN_IF_ERROR(CheckOne("parameter", name, tensor, step));
    }
  }
  return CheckBuffers(step);
}

absl::Status FiniteCheck::CheckShards(int64_t step,
                                      const std::vector<models::Parameter>& parameters,
                                      parallel::Strategy& strategy) const {
  absl::Status mine;
  for (const parallel::Piece& piece : strategy.shards()->held) {
    mine.Update(CheckOne("parameter", parameters[piece.parameter].name, piece.tensor, step));
  }
  ASSIGN_OR_RETURN(const auto found, strategy.GatherSums({mine.ok() ? 0.0 : 1.0, 0.0}));
  RETURN_IF_ERROR(mine);
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (found[rank][0] == 0) continue;
    return absl::OutOfRangeError(
        absl::StrCat("after step ", step, " a parameter is not finite on rank ", rank));
  }
  return absl::OkStatus();
}

absl::Status FiniteCheck::CheckBuffers(int64_t step) const {
  for (const auto& [name, tensor] : buffers_) {
    RETURN_IF_ERROR(CheckOne("buffer", name, tensor, step));
  }
  return absl::OkStatus();
}

}  // namespace muster::train
