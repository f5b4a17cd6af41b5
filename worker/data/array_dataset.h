// Samples of several arrays, for models that take their inputs by name (InputSpec::arrays). A file
// format finds the arrays in its files; this class reads and checks samples from the arrays.
#ifndef MUSTER_WORKER_DATA_ARRAY_DATASET_H_
#define MUSTER_WORKER_DATA_ARRAY_DATASET_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/data/array.h"
#include "worker/data/dataset.h"

namespace muster::data {

// The arrays of one file, each [N, ...] with the same N.
struct ArraysFile {
  std::vector<Array> inputs;  // in the order of InputSpec::arrays
  // Classes of an integer type, or numbers of a float type, as InputSpec says. Not used with
  // Labels::kIgnored, or if the model has a loss of its own.
  Array targets;
};

// Returns "'a', 'b'".
std::string Quoted(const std::vector<std::string>& names);

// Compares the names that a job gives, in any order, with those of the model's inputs.
// INVALID_ARGUMENT with both lists if they differ.
absl::Status CheckInputNames(const InputSpec& spec, std::vector<std::string> given);

// Makes a data set of files that follow one another. An array may be read as another type than its
// own: floats as float32; integers and bool as int64 or int32; bool and integers that are 0 or 1 as
// bool. Conversions are noted (Dataset::notes). Errors: INVALID_ARGUMENT:
// - no file, or no sample at all (unless kAllowed);
// - a model that does not take arrays;
// - an array of another shape, or of a type that does not fit.
//
// Errors of Check and Read besides Dataset's, each with file, array, row and byte offset:
// - INVALID_ARGUMENT: a whole number that is outside of its range, or a float that is not finite
//   (only of Read);
// - FAILED_PRECONDITION: a file has been shortened.
absl::StatusOr<std::unique_ptr<Dataset>> MakeArrayDataset(std::vector<ArraysFile> files,
                                                          const InputSpec& spec, Labels labels,
                                                          Emptiness emptiness);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_ARRAY_DATASET_H_
