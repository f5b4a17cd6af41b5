#include "worker/models/model.h"

#include <string>

#include "ATen/core/Reduction.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/argmax.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/eq.h"
#include "ATen/ops/gather.h"
#include "ATen/ops/item.h"
#include "ATen/ops/le.h"
#include "ATen/ops/logical_and.h"
#include "ATen/ops/logical_not.h"
#include "ATen/ops/logical_or.h"
#include "ATen/ops/lt.h"
#include "ATen/ops/mse_loss.h"
#include "ATen/ops/ne.h"
#include "ATen/ops/ones_like.h"
#include "ATen/ops/sum.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster::models {

std::string Describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "nothing";
  return absl::StrCat(c10::toString(tensor.scalar_type()), " [",
                      absl::StrJoin(tensor.sizes(), ", "), "]");
}

at::Tensor Judged::Targets() const {
  return counts.defined() ? targets.masked_fill(counts.logical_not(), 0) : targets;
}

at::Tensor Judged::Counted() const {
  return counts.defined() ? counts.to(at::kLong) : at::ones_like(targets);
}

at::Tensor Judged::Predicted() const { return logits.argmax(-1); }

at::Tensor Judged::InTop(int64_t k) const {
  const at::Tensor target = Targets().unsqueeze(1);
  const at::Tensor own = logits.gather(1, target);
  const at::Tensor lower = at::arange(logits.size(1), target.options()).lt(target);
  // Counts a NaN as larger.
  const at::Tensor larger =
      logits.le(own).logical_not().logical_or(logits.eq(own).logical_and(lower));
  const at::Tensor in_top = larger.sum(1).lt(k);
  return counts.defined() ? in_top.logical_and(counts) : in_top;
}

at::Tensor Judged::Correct() const {
  const at::Tensor correct = Predicted().eq(targets);
  return (counts.defined() ? correct.logical_and(counts) : correct).sum();
}

namespace {

bool IsTokens(const at::Tensor& tensor, int64_t context) {
  return tensor.defined() && tensor.scalar_type() == at::kLong && tensor.dim() == 2 &&
         tensor.size(0) > 0 && tensor.size(1) > 0 && tensor.size(1) <= context;
}

bool IsRows(const at::Tensor& rows, int64_t row_elements) {
  return rows.defined() && rows.scalar_type() == at::kFloat && rows.dim() >= 2 &&
         rows.size(0) > 0 && rows.numel() == rows.size(0) * row_elements;
}

bool IsClasses(const at::Tensor& labels, int64_t rows) {
  return labels.defined() && labels.scalar_type() == at::kLong && labels.dim() == 1 &&
         labels.size(0) == rows;
}

bool IsNumbers(const at::Tensor& tensor, int64_t rows, int64_t numbers) {
  return tensor.defined() && tensor.scalar_type() == at::kFloat && tensor.dim() == 2 &&
         tensor.size(0) == rows && tensor.size(1) == numbers;
}

absl::Status CheckArrays(const Tensors& inputs, const InputSpec& spec) {
  if (inputs.size() != spec.arrays.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch: expected ", spec.arrays.size(), " inputs, found ", inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputArray& array = spec.arrays[i];
    const at::Tensor& found = inputs[i];
    if (found.defined() && found.dim() > 0 && found.size(0) > 0 &&
        found.scalar_type() == array.type &&
        found.sizes().slice(1) == at::IntArrayRef(array.shape)) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("batch: '", array.name, "': expected ", c10::toString(array.type), " [B",
                     array.shape.empty() ? "" : ", ", absl::StrJoin(array.shape, ", "), "], found ",
                     Describe(found)));
  }
  return absl::OkStatus();
}

LossOutput CrossEntropy(const at::Tensor& logits, const Batch& batch, const LossOptions& options,
                        bool training) {
  const at::Tensor targets = batch.targets.flatten();
  const at::Tensor flat = logits.view({targets.numel(), logits.size(-1)});
  LossOutput output{.terms = targets.numel()};
  at::Tensor counts;  // which targets count; undefined: all
  if (options.ignore_index.has_value()) {
    counts = targets.ne(*options.ignore_index);
    output.terms =
        batch.counted_targets.has_value() ? *batch.counted_targets : counts.sum().item<int64_t>();
  }
  if (output.terms == 0) {
    output.mean_loss = flat.sum().to(at::kFloat).mul(0);  // cross_entropy_loss would give 0 / 0
  } else {
    constexpr int64_t kNothing = -100;  // never a target
    output.mean_loss =
        at::cross_entropy_loss(flat, targets, /*weight=*/{}, at::Reduction::Mean,
                               options.ignore_index.value_or(kNothing), options.label_smoothing);
  }
  if (!training) output.judged = Judged{flat, targets, counts};
  return output;
}

}  // namespace

std::vector<std::string> Model::SourceOrder() const {
  std::vector<std::string> names;
  for (const auto& parameter : Parameters()) names.push_back(parameter.name);
  return names;
}

absl::Status Model::SetLoss(const LossOptions& loss) {
  if (loss.kind == LossKind::kMse && UnitsInput().kind == InputSpec::Kind::kTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("loss: found mse, but the model ", kind_,
                     " gives logits of tokens; allowed: cross_entropy"));
  }
  loss_ = loss;
  return absl::OkStatus();
}

InputSpec Model::Input() const {
  InputSpec spec = UnitsInput();
  if (spec.own_loss) return spec;
  spec.ignored = loss_.ignore_index;
  if (loss_.kind == LossKind::kMse) {
    spec.target_numbers = spec.classes;
    for (const int64_t size : spec.target_shape) spec.target_numbers *= size;
  }
  return spec;
}

Tensors Model::InputsOf(const Batch& batch) {
  Tensors inputs = {batch.inputs};
  inputs.insert(inputs.end(), batch.further.begin(), batch.further.end());
  return inputs;
}

bool Model::HasPerplexity() const {
  return loss_.kind == LossKind::kCrossEntropy && UnitsInput().kind == InputSpec::Kind::kTokens;
}

LossOutput Model::Loss(const Batch& batch, ForwardContext& context) {
  const at::Tensor logits = Logits(batch, context);
  if (loss_.kind == LossKind::kMse) {
    return {.mean_loss = at::mse_loss(logits, batch.targets.view(logits.sizes())),
            .terms = logits.numel()};
  }
  return CrossEntropy(logits, batch, loss_, context.training());
}

absl::Status Model::CheckBatch(const Batch& batch) const {
  const InputSpec spec = Input();
  if (spec.kind == InputSpec::Kind::kArrays) return CheckArrays(InputsOf(batch), spec);
  std::string expected;
  if (spec.kind == InputSpec::Kind::kTokens) {
    if (IsTokens(batch.inputs, spec.context) && IsTokens(batch.targets, spec.context) &&
        batch.inputs.sizes() == batch.targets.sizes() &&
        batch.further.size() <= (spec.documents ? 1 : 0) &&
        (batch.further.empty() || (IsTokens(batch.further[0], spec.context) &&
                                   batch.further[0].sizes() == batch.inputs.sizes()))) {
      return absl::OkStatus();
    }
    expected =
        absl::StrCat("inputs and targets", spec.documents ? " (and positions in documents)" : "",
                     " Long [B, C] with C <= ", spec.context);
  } else {
    const bool classes = spec.target_numbers == 0;
    if (IsRows(batch.inputs, spec.row_elements) &&
        (classes ? IsClasses(batch.targets, batch.inputs.size(0))
                 : IsNumbers(batch.targets, batch.inputs.size(0), spec.target_numbers))) {
      return absl::OkStatus();
    }
    expected = absl::StrCat(
        "inputs Float [B, ...] with ", spec.row_elements, " numbers per row and targets ",
        classes ? "Long [B]" : absl::StrCat("Float [B, ", spec.target_numbers, "]"));
  }
  return absl::InvalidArgumentError(absl::StrCat("batch for ", kind_, ": expected ", expected,
                                                 ", found inputs ", Describe(batch.inputs),
                                                 " and targets ", Describe(batch.targets)));
}

WeightName Model::ResolveWeight(const std::string& name) const {
  for (const Parameter& parameter : Parameters()) {
    if (parameter.name == name) return {WeightName::Kind::kParameter, name};
  }
  for (const Buffer& buffer : Buffers()) {
    if (buffer.name == name) return {WeightName::Kind::kParameter, name};
  }
  return {};
}

}  // namespace muster::models
