// Rows from NumPy's .npy files, memory-mapped (docs/reference/data.md). Pairs of files follow one
// another.
#ifndef MUSTER_WORKER_DATA_NPY_DATASET_H_
#define MUSTER_WORKER_DATA_NPY_DATASET_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace muster::data {

// `inputs` and `labels`: equally many files of each. With Labels::kIgnored, files of labels are not
// opened, and there may be none. Errors:
// - those of MakeRowDataset;
// - INVALID_ARGUMENT: lists of different lengths, a file that is not a .npy file, or a dtype that
//   is no little-endian float or, for labels, integer;
// - NOT_FOUND etc.: a file cannot be opened;
// - DATA_LOSS: a file is damaged, or shorter or longer than its header says.
absl::StatusOr<std::unique_ptr<Dataset>> OpenNpy(const std::vector<std::string>& inputs,
                                                 const std::vector<std::string>& labels,
                                                 const InputSpec& spec,
                                                 Labels has_labels = Labels::kNeeded);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_NPY_DATASET_H_
