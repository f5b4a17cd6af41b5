// Samples from NumPy's .npy files, memory-mapped (docs/reference/data.md): rows, or the arrays of a
// model that takes its inputs by name. Files of a list follow one another.
#ifndef MUSTER_WORKER_DATA_NPY_DATASET_H_
#define MUSTER_WORKER_DATA_NPY_DATASET_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace muster::data {

// The files of a data set, equally many in each list.
struct NpyOptions {
  std::vector<std::string> inputs;
  std::vector<std::string> labels;
  // In place of `inputs`: the inputs of a model that takes its inputs by name.
  struct NamedFiles {
    std::string name;
    std::vector<std::string> paths;
  };
  std::vector<NamedFiles> arrays;
};

// With Labels::kIgnored, files of labels are not opened, and there may be none. Errors:
// - those of MakeRowDataset and MakeArrayDataset;
// - INVALID_ARGUMENT: lists of different lengths, names that the model does not have, a file that
//   is not a .npy file, or a dtype that is no little-endian float or, for labels and arrays,
//   integer;
// - NOT_FOUND etc.: a file cannot be opened;
// - DATA_LOSS: a file is damaged, or shorter or longer than its header says.
absl::StatusOr<std::unique_ptr<Dataset>> OpenNpy(const NpyOptions& files, const InputSpec& spec,
                                                 Labels has_labels = Labels::kNeeded);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_NPY_DATASET_H_
