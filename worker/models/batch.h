// The input of a model in one micro-batch, and a model's requirements on a data set. Shared by
// models and data.
#ifndef MUSTER_WORKER_MODELS_BATCH_H_
#define MUSTER_WORKER_MODELS_BATCH_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"

namespace muster::models {

// One micro-batch on one rank.
//   tokens: inputs and targets int64 [B, C], targets shifted by one
//   rows:   inputs float32 [B, ...]; targets int64 [B] (classes), or float32 [B, M] (numbers)
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
  // The number of targets that are not InputSpec::ignored, if known. To count them on a GPU, the
  // host would have to wait.
  std::optional<int64_t> counted_targets = std::nullopt;
};

// The data that a model accepts. A data set is checked against the InputSpec when it is opened.
struct InputSpec {
  enum class Kind { kTokens, kRows };
  Kind kind = Kind::kTokens;
  // Tokens: every token is below `vocab_size`. Samples have `context` inputs and as many targets.
  int64_t vocab_size = 0;
  int64_t context = 0;
  // Rows: every row has `row_elements` numbers, in any shape. Labels are below `classes`, or
  // `ignored`.
  int64_t row_elements = 0;
  int64_t classes = 0;
  // A target value that the loss ignores, outside of the vocabulary or the classes.
  std::optional<int64_t> ignored;
  // Rows, for a loss over numbers: the target of a row is this number of float32 numbers. 0: the
  // target is a class.
  int64_t target_numbers = 0;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_BATCH_H_
