// Samples from safetensors files (docs/reference/data.md): rows, with `inputs` float32 [N, ...] and
// `labels` in each file, or the arrays of a model that takes its inputs by name. Files of a list
// follow one another.
#ifndef MUSTER_WORKER_DATA_SAFETENSORS_DATASET_H_
#define MUSTER_WORKER_DATA_SAFETENSORS_DATASET_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace muster::data {

// The names of the arrays in the files. Empty: the default names, which are `inputs` and `labels`,
// or those of the model's inputs.
struct ArrayNames {
  std::vector<std::string> inputs;
  std::string targets;
};

// Targets may be missing with Labels::kIgnored. Errors: those of MakeRowDataset and
// MakeArrayDataset; INVALID_ARGUMENT for names that the model does not have, and for a file without
// one of the arrays; NOT_FOUND etc. for files that cannot be opened; DATA_LOSS for a broken file.
absl::StatusOr<std::unique_ptr<Dataset>> OpenSafetensors(const std::vector<std::string>& paths,
                                                         const InputSpec& spec,
                                                         Emptiness emptiness = Emptiness::kRefused,
                                                         Labels has_labels = Labels::kNeeded,
                                                         const ArrayNames& names = {});

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_SAFETENSORS_DATASET_H_
