#include "worker/models/model.h"

#include <string>

#include "ATen/ops/cross_entropy_loss.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster::models {
namespace {

std::string Describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "nothing";
  return absl::StrCat(c10::toString(tensor.scalar_type()), " [",
                      absl::StrJoin(tensor.sizes(), ", "), "]");
}

bool IsTokens(const at::Tensor& tensor, int64_t context) {
  return tensor.defined() && tensor.scalar_type() == at::kLong && tensor.dim() == 2 &&
         tensor.size(0) > 0 && tensor.size(1) > 0 && tensor.size(1) <= context;
}

bool IsRows(const Batch& batch, int64_t row_elements) {
  const at::Tensor& rows = batch.inputs;
  const at::Tensor& labels = batch.targets;
  return rows.defined() && rows.scalar_type() == at::kFloat && rows.dim() >= 2 &&
         rows.size(0) > 0 && rows.numel() == rows.size(0) * row_elements && labels.defined() &&
         labels.scalar_type() == at::kLong && labels.dim() == 1 && labels.size(0) == rows.size(0);
}

}  // namespace

LossOutput Model::Loss(const Batch& batch, ForwardContext& context) {
  const at::Tensor logits = Logits(batch.inputs, context);
  const int64_t terms = batch.targets.numel();
  return {
      at::cross_entropy_loss(logits.view({terms, logits.size(-1)}), batch.targets.reshape({terms})),
      terms};
}

absl::Status Model::CheckBatch(const Batch& batch) const {
  const InputSpec spec = Input();
  std::string expected;
  if (spec.kind == InputSpec::Kind::kTokens) {
    if (IsTokens(batch.inputs, spec.context) && IsTokens(batch.targets, spec.context) &&
        batch.inputs.sizes() == batch.targets.sizes()) {
      return absl::OkStatus();
    }
    expected = absl::StrCat("inputs and targets Long [B, C] with C <= ", spec.context);
  } else {
    if (IsRows(batch, spec.row_elements)) return absl::OkStatus();
    expected = absl::StrCat("inputs Float [B, ...] with ", spec.row_elements,
                            " numbers per row and targets Long [B]");
  }
  return absl::InvalidArgumentError(absl::StrCat("batch for ", kind_, ": expected ", expected,
                                                 ", found inputs ", Describe(batch.inputs),
                                                 " and targets ", Describe(batch.targets)));
}

WeightName Model::ResolveWeight(const std::string& name) const {
  for (const Parameter& parameter : Parameters()) {
    if (parameter.name == name) return {WeightName::Kind::kParameter, name};
  }
  return {};
}

}  // namespace muster::models
