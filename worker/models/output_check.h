// Helpers for models that a user provides (torchscript, plugin): the shape of rows, and a check
// with one small batch before training. The check finds out whether the model accepts the input and
// returns the output that its options describe.
#ifndef MUSTER_WORKER_MODELS_OUTPUT_CHECK_H_
#define MUSTER_WORKER_MODELS_OUTPUT_CHECK_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/models/batch.h"

namespace muster::models {

// Returns x [B, ...] reshaped to [B, row...]; unchanged if `row` is empty.
at::Tensor InRows(const at::Tensor& x, const std::vector<int64_t>& row);

// Returns two samples for `input`: consecutive tokens, or rows [2, row...] of numbers that rise
// from -1 to 1. All targets are 0.
Batch ProbeBatch(const InputSpec& input, const std::vector<int64_t>& row);

// Checks the output of a root for two samples: float32 [2, context, vocab_size] or [2, classes].
// INVALID_ARGUMENT with expected and found.
absl::Status CheckLogits(const at::Tensor& logits, const InputSpec& input);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_OUTPUT_CHECK_H_
