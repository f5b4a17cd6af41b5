// Models from outside (torchscript, plugin): the shape in which they take rows, and one small batch
// before any training: do they take what their options say, and give what they promise?
#ifndef MUSTER_WORKER_MODELS_OUTPUT_CHECK_H_
#define MUSTER_WORKER_MODELS_OUTPUT_CHECK_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/models/batch.h"

namespace muster::models {

// x [B, ...] as [B, row...]; as it is when `row` is empty.
at::Tensor InRows(const at::Tensor& x, const std::vector<int64_t>& row);

// Two samples for `input`: tokens that count up, or rows [2, row...] whose numbers rise from -1 to
// 1. All targets 0.
Batch ProbeBatch(const InputSpec& input, const std::vector<int64_t>& row);

// What a root must give for it: float32 [2, context, vocab_size] or [2, classes].
// INVALID_ARGUMENT: expected and found.
absl::Status CheckLogits(const at::Tensor& logits, const InputSpec& input);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_OUTPUT_CHECK_H_
