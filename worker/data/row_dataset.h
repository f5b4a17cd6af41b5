// Rows of numbers with their labels: the code that the file formats of rows share. A format finds
// the arrays in its files; this class reads and checks samples from the arrays.
#ifndef MUSTER_WORKER_DATA_ROW_DATASET_H_
#define MUSTER_WORKER_DATA_ROW_DATASET_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/array.h"
#include "worker/data/dataset.h"

namespace muster::data {

// The rows of one file, or of one pair of files.
struct RowFile {
  Array inputs;  // of a float type, or uint8 (ByteValues): [N, ...]
  // Classes: of an integer type, [N]. Numbers: of a float type, [N] or [N, M]. Not used with
  // Labels::kIgnored.
  Array labels;
};

// The values of the bytes of uint8 inputs.
using ByteValues = std::array<float, 256>;

// Makes a data set of files that follow one another. Targets are as batch.h says for `spec`. Types
// that become float32 or int64 are noted (Dataset::notes), except uint8. Also noted: arrays in
// Fortran order. Errors: INVALID_ARGUMENT:
// - an empty list, or no row at all;
// - a model that does not take rows;
// - inputs or labels of another type or shape than the model's;
// - files whose rows differ in shape.
//
// Errors of Check and Read besides Dataset's, each with file, row and byte offset:
// - INVALID_ARGUMENT: a class outside [0, spec.classes) that is not spec.ignored;
// - FAILED_PRECONDITION: a file has been shortened;
// - INVALID_ARGUMENT, of Read only: inputs or targets that are not finite in float32.
absl::StatusOr<std::unique_ptr<Dataset>> MakeRowDataset(std::vector<RowFile> files,
                                                        const InputSpec& spec, Labels labels,
                                                        const ByteValues& bytes = {},
                                                        Emptiness emptiness = Emptiness::kRefused);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_ROW_DATASET_H_
