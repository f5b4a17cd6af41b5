// A data set: a fixed number of samples, readable in any order.
//
// Threading: const after opening; Read may be called from several threads.
#ifndef MUSTER_WORKER_DATA_DATASET_H_
#define MUSTER_WORKER_DATA_DATASET_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/source.h"
#include "worker/data/notes.h"
#include "worker/data/part.h"
#include "worker/models/batch.h"

namespace muster::data {

using models::Batch;
using models::InputSpec;

class Dataset {
 public:
  virtual ~Dataset() = default;

  // The number of samples, at least 1 unless the data set was opened with Emptiness::kAllowed.
  virtual int64_t size() const = 0;

  // Reads this part of all tokens, or labels, of the files once, and checks that they are valid for
  // the model. The parts together are everything, so each of several ranks may check a part of the
  // same files. Calls activity::Moved() for each block. Errors: those of Read for the first token
  // or label that is not valid.
  virtual absl::Status Check(const Part& part) const = 0;

  // Returns the samples of these indices, at least one, as one batch in this order. A fresh copy.
  // OUT_OF_RANGE: an index outside [0, size). INVALID_ARGUMENT: a sample is not valid for the
  // model. FAILED_PRECONDITION: a file was shortened. The last two name the file and the position
  // in it.
  virtual absl::StatusOr<Batch> Read(std::span<const int64_t> samples) const = 0;

  // Zeros with the shapes and types of a batch of this many samples, which is above 0.
  virtual Batch Blank(int64_t samples) const = 0;

  // The mean number of tokens of a sample, if samples have different numbers.
  virtual std::optional<double> mean_tokens() const { return std::nullopt; }

  // The source of the tokens, if it is known.
  virtual tokenizer::Source tokenizer() const { return {}; }

  // Notes for people on the files, found when the files were opened.
  virtual std::vector<Note> notes() const { return {}; }
};

// Says whether a data set may have no sample.
enum class Emptiness { kRefused, kAllowed };

// Says whether rows have labels. kIgnored: the files need no labels, existing labels are not read,
// and targets are zeros. Without effect on tokens, whose targets are tokens.
enum class Labels { kNeeded, kIgnored };

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_DATASET_H_
