#include "worker/train/step/finite.h"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/all.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/item.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/data/scans.h"
#include "worker/device/host_values.h"
#include "worker/device/memory.h"

namespace muster::train {
namespace {

bool IsFinite(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat) return true;
  if (!tensor.is_cpu()) return at::isfinite(tensor).all().item<bool>();
  const auto values = device::HostValues<float>(tensor);
  return !data::FirstNotFinite(values.data(), tensor.numel()).has_value();
}

absl::Status NotFinite(const char* what, const std::string& name, int64_t step) {
  return absl::OutOfRangeError(
      absl::StrCat("after step ", step, " ", what, " '", name,
                   "' is not finite, so nothing of this step is saved; check the learning rate, "
                   "clip_grad_norm, and the data of that step"));
}

absl::Status CheckOne(const char* what, const std::string& name, const at::Tensor& tensor,
                      int64_t step) {
  return IsFinite(tensor) ? absl::OkStatus() : NotFinite(what, name, step);
}

// Whether LargestOfBuffers has a number for this buffer.
bool HasLargest(const models::Buffer& buffer) {
  return buffer.tensor.scalar_type() == at::kFloat && buffer.tensor.numel() > 0;
}

}  // namespace

FiniteCheck::FiniteCheck(const models::Model& model, c10::Device device)
    : model_(model), device_(device) {
  for (models::Buffer buffer : model.Buffers()) {
    if (IsFinite(buffer.tensor)) buffers_.push_back(std::move(buffer));
  }
}

absl::Status FiniteCheck::Check(int64_t step, parallel::Strategy* strategy) const {
  const auto parameters = model_.Parameters();
  if (strategy != nullptr && strategy->store().shards() != nullptr) {
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
  for (const parallel::Piece& piece : strategy.store().shards()->held) {
    mine.Update(CheckOne("parameter", parameters[piece.parameter].name, piece.tensor, step));
  }
  const at::Tensor bad = device::HostTensor(std::array<double, 1>{mine.ok() ? 0.0 : 1.0});
  ASSIGN_OR_RETURN(const at::Tensor all, strategy.GatherSums(device::On(device_, bad)));
  RETURN_IF_ERROR(mine);
  const at::Tensor here = device::On(at::kCPU, all);
  const auto found = device::HostValues<double>(here);
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (found[rank] == 0) continue;
    return absl::OutOfRangeError(
        absl::StrCat("after step ", step, " a parameter is not finite on rank ", rank));
  }
  return absl::OkStatus();
}

absl::Status FiniteCheck::CheckParameters(int64_t step, const checkpoint::State& state) {
  for (const checkpoint::HeldPiece& piece : state.held) {
    const checkpoint::StateItem& item = state.items[piece.item];
    if (item.slot != "param") continue;
    RETURN_IF_ERROR(CheckOne("parameter", item.parameter, piece.tensor, step));
  }
  return absl::OkStatus();
}

at::Tensor FiniteCheck::LargestOfBuffers() const {
  std::vector<at::Tensor> checked;
  for (const models::Buffer& buffer : buffers_) {
    if (HasLargest(buffer)) checked.push_back(buffer.tensor);
  }
  if (checked.empty()) return {};
  const c10::NoGradGuard no_grad;
  return at::stack(at::_foreach_norm(checked, std::numeric_limits<double>::infinity()));
}

absl::Status FiniteCheck::CheckLargest(absl::Span<const double> largest, int64_t step) const {
  size_t next = 0;
  for (const models::Buffer& buffer : buffers_) {
    if (!HasLargest(buffer)) continue;
    if (!std::isfinite(largest[next++])) return NotFinite("buffer", buffer.name, step);
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
