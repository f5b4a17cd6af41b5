// For models that a user provides (torchscript, plugin): the shape in which they take rows, and a
// check with one small batch before training that they accept the input and return the output that
// their options describe.
#ifndef MUSTER_WORKER_MODELS_OUTPUT_CHECK_H_
#define MUSTER_WORKER_MODELS_OUTPUT_CHECK_H_

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "worker/models/batch.h"

namespace muster::models {

// x [B, ...] reshaped to [B, row...]; unchanged if `row` is empty.
at::Tensor InRows(const at::Tensor& x, const std::vector<int64_t>& row);

// Two samples for `input`: consecutive tokens, or rows [2, row...] whose numbers rise from -1 to 1.
// All targets 0.
Batch ProbeBatch(const InputSpec& input, const std::vector<int64_t>& row);

// Checks the output of a root for these samples: float32 [2, context, vocab_size] or [2, classes].
// INVALID_ARGUMENT: expected and found.
absl::Status CheckLogits(const at::Tensor& logits, const InputSpec& input);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_OUTPUT_CHECK_H_
