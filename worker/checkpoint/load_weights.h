// Loads the tensors of safetensors files into a model's parameters and buffers. Values of
// parameters without memory (deferred_values.h) are read only on request. So a rank that holds a
// part of the model reads only this part of the files.
#ifndef MUSTER_WORKER_CHECKPOINT_LOAD_WEIGHTS_H_
#define MUSTER_WORKER_CHECKPOINT_LOAD_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/problems/problems.h"
#include "worker/checkpoint/weight_names.h"
#include "worker/models/deferred_values.h"
#include "worker/models/model.h"

namespace muster::checkpoint {

struct WeightsOptions {
  // A safetensors file, or the index of a sharded model: a name that ends in .json.
  std::string path;
  // Patterns of the names in the file; empty: all. The other tensors are not read.
  std::vector<std::string> take;
  // New names of tensors that are taken.
  Renames rename;
  // The treatment of parameters and buffers that the file does not have.
  enum class Missing { kRefuse, kInitial };
  Missing missing = Missing::kRefuse;
  // Whether tensors with a row for each token may have more rows than the model, whose first ones
  // are taken, or fewer: the other rows of the model keep their initial values.
  bool pad_vocabulary = false;
};

// The tensors of the file and of the model by their treatment, by name and in their order.
struct WeightsReport {
  std::vector<std::string> taken;    // the names in the file
  std::vector<std::string> renamed;  // of the taken ones: "'a' to 'b'"
  // Of the taken ones those of which the model has only the first rows: "'a' from 4 to 2 rows".
  std::vector<std::string> shortened;
  // Of the taken ones those with fewer rows than the model: "'a' from 2 to 4 rows".
  std::vector<std::string> padded;
  std::vector<std::string> ignored;  // not matched by `take`, or constants of the model
  std::vector<std::string> initial;  // parameters and buffers that keep their initial values
  // The differences between the config.json beside the file and the model, if they are no error.
  std::string other_config;
};

// One line for people: the count of each, and at most three names.
std::string Describe(const WeightsReport& report);

// The result of LoadWeights. Copies are the same object. Threading: as the deferred values.
class LoadedWeights {
 public:
  struct Read {
    std::string path;
    int64_t bytes = 0;
    Problems problems;
  };

  LoadedWeights(WeightsReport report, std::shared_ptr<const Read> read)
      : report_(std::move(report)), read_(std::move(read)) {}

  const WeightsReport& report() const { return report_; }
  // INVALID_ARGUMENT: values that were read so far are not finite, or differ between two names of a
  // parameter. Call it after the deferred values have been used.
  absl::Status status() const {
    return read_->problems.ToStatus(absl::StatusCode::kInvalidArgument, read_->path);
  }
  // The number of bytes of tensors that were read so far.
  int64_t bytes_read() const { return read_->bytes; }

 private:
  WeightsReport report_;
  std::shared_ptr<const Read> read_;
};

// Copies tensors of the files into the model's parameters and buffers. A floating-point tensor of
// the model may be F64, F32, F16 or BF16 in the file; an int64 tensor must be I64. BatchNorm's
// num_batches_tracked may be missing, and then stays unchanged.
//
// A config.json is checked if it lies beside a file with transformers' name (model.safetensors,
// model.safetensors.index.json). Then config.json must fit the model, too. With renames, the file
// may be of another kind of model, and a difference is only reported.
//
// `deferred`: keeps the values of parameters without memory of their own. Each request reads the
// values from the files again; the files stay open as long. Everything else is read once, before
// this function returns.
//
// Errors:
// - INVALID_ARGUMENT, before any value is changed, with all problems (at most 3 are listed): those
//   of TakenNames, missing and unexpected names, shapes expected and found, dtypes.
// - INVALID_ARGUMENT, after which some values of the model may be changed: two names of a parameter
//   have different values, or values are not finite in float32 but finite in the model.
// - The errors of safetensors::TensorSet::Open: DATA_LOSS for a broken file, NOT_FOUND etc. for a
//   file that cannot be opened, tensors that are not where the index says.
absl::StatusOr<LoadedWeights> LoadWeights(const WeightsOptions& options, const models::Model& model,
                                          models::DeferredValues* deferred = nullptr);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_LOAD_WEIGHTS_H_
