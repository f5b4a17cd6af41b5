// The input of a model in one micro-batch, and a model's requirements on a data set. Shared by
// models and data.
#ifndef MUSTER_WORKER_MODELS_BATCH_H_
#define MUSTER_WORKER_MODELS_BATCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/ScalarType.h"

namespace muster::models {

// One micro-batch on one rank.
//   tokens: inputs and targets int64 [B, C], targets shifted by one. If several documents follow
//           one another in a row, `further` has the position of each token in its document, int64
//           [B, C]; a document begins at each 0 (only with InputSpec::documents)
//   rows:   inputs float32 [B, ...]; targets int64 [B] (classes), or float32 [B, M] (numbers)
//   arrays: inputs and further as InputSpec::arrays says; targets as InputSpec says
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
  // The number of targets that are not InputSpec::ignored, if known. To count them on a GPU, the
  // host would have to wait.
  std::optional<int64_t> counted_targets = std::nullopt;
  // The inputs after the first, of a model that takes several.
  std::vector<at::Tensor> further = {};
};

// An input of a model that takes its inputs by name.
struct InputArray {
  std::string name;
  c10::ScalarType type = c10::ScalarType::Float;  // float32, int64, int32 or bool
  std::vector<int64_t> shape;                     // of one sample
  std::optional<int64_t> below;  // whole numbers: each is in [0, below), if this is known

  // The number of elements of one sample.
  int64_t elements() const;
};

// What a loss that the model itself computes is the mean of, if it is not the samples.
struct CountedInput {
  size_t input = 0;   // in InputSpec::arrays: int64 targets, of which `ignored` does not count
  int64_t first = 0;  // 1: the first target of each sample does not count, because the model shifts
                      // its targets by one
};

// The data that a model accepts. A data set is checked against the InputSpec when it is opened.
struct InputSpec {
  enum class Kind { kTokens, kRows, kArrays };
  Kind kind = Kind::kTokens;
  // Tokens: every token is below `vocab_size`. Samples have `context` inputs and as many targets.
  // Arrays: above 0 if tokens can fill the arrays, which then are the tokens and the targets.
  int64_t vocab_size = 0;
  int64_t context = 0;
  // Tokens: the model keeps documents in one row apart: attention stays within each.
  bool documents = false;
  // Rows: every row has `row_elements` numbers, in any shape. Labels are below `classes`, or
  // `ignored`.
  int64_t row_elements = 0;
  int64_t classes = 0;
  // A target value that the loss ignores, outside of the vocabulary or the classes.
  std::optional<int64_t> ignored;
  // Rows, for a loss over numbers: the target of a row is this number of float32 numbers. 0: the
  // target is a class.
  int64_t target_numbers = 0;
  // Arrays: the model's inputs in its order. Without own_loss, the targets are classes of the shape
  // `target_shape` in each sample, or `target_numbers` numbers.
  std::vector<InputArray> arrays;
  std::vector<int64_t> target_shape;
  // The model returns its loss, and its targets are among the arrays. Batch::targets are then those
  // that count: of `counted`, or one for each sample.
  bool own_loss = false;
  std::optional<CountedInput> counted;

  // The number of targets of one sample.
  int64_t TargetsOfSample() const;
};

// Returns the targets of the batch as InputSpec::own_loss describes them, from its arrays.
at::Tensor CountedTargets(const InputSpec& spec, const std::vector<at::Tensor>& arrays);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_BATCH_H_
