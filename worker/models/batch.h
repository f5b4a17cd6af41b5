// The input of a model in one micro-batch, and its requirements on a data set. Shared by models and
// data.
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
  // How many targets are not InputSpec::ignored, if it is known: on a GPU the host would have to
  // wait for the number.
  std::optional<int64_t> counted_targets = std::nullopt;
};

// The data that a model accepts; a data set is checked against it when it is opened.
struct InputSpec {
  enum class Kind { kTokens, kRows };
  Kind kind = Kind::kTokens;
  // Tokens: every token is below `vocab_size`; samples have `context` inputs (and as many targets).
  int64_t vocab_size = 0;
  int64_t context = 0;
  // Rows: every row has `row_elements` numbers, whatever its shape; labels are below `classes`, or
  // `ignored`.
  int64_t row_elements = 0;
  int64_t classes = 0;
  // A target value, outside of the vocabulary or the classes, that the loss ignores.
  std::optional<int64_t> ignored;
  // Rows, for a loss over numbers: how many float32 numbers are the target of a row, instead of a
  // class. 0: the target is a class.
  int64_t target_numbers = 0;
};

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_BATCH_H_
