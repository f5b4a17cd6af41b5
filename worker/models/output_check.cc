#include "worker/models/output_check.h"

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/linspace.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/util/accumulate.h"
#include "worker/models/model.h"

namespace muster::models {
namespace {

constexpr int64_t kSamples = 2;

}  // namespace

at::Tensor InRows(const at::Tensor& x, const std::vector<int64_t>& row) {
  if (row.empty() || x.sizes().slice(1) == at::IntArrayRef(row)) return x;
  std::vector<int64_t> shape = {x.size(0)};
  shape.insert(shape.end(), row.begin(), row.end());
  return x.reshape(shape);
}

Batch ProbeBatch(const InputSpec& input, const std::vector<int64_t>& row) {
  if (input.kind == InputSpec::Kind::kTokens) {
    const at::Tensor tokens =
        at::arange(kSamples * input.context, at::kLong).remainder(input.vocab_size);
    return {tokens.view({kSamples, input.context}),
            at::zeros({kSamples, input.context}, at::kLong)};
  }
  std::vector<int64_t> shape = {kSamples};
  shape.insert(shape.end(), row.begin(), row.end());
  return {at::linspace(-1, 1, c10::multiply_integers(shape), at::kFloat).view(shape),
          input.target_numbers > 0 ? at::zeros({kSamples, input.target_numbers}, at::kFloat)
                                   : at::zeros({kSamples}, at::kLong)};
}

absl::Status CheckLogits(const at::Tensor& logits, const InputSpec& input) {
  const std::vector<int64_t> expected =
      input.kind == InputSpec::Kind::kTokens
          ? std::vector<int64_t>{kSamples, input.context, input.vocab_size}
          : std::vector<int64_t>{kSamples, input.classes};
  if (logits.defined() && logits.scalar_type() == at::kFloat &&
      logits.sizes() == at::IntArrayRef(expected)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("output for ", kSamples, " samples: expected Float [",
                   absl::StrJoin(expected, ", "), "], found ", Describe(logits)));
}

}  // namespace muster::models
