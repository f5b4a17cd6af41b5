// Rows from safetensors files: `inputs` float32 [N, ...] and `labels` in each
// (docs/reference/data.md). Files of a list follow one another.
#ifndef MUSTER_WORKER_DATA_SAFETENSORS_DATASET_H_
#define MUSTER_WORKER_DATA_SAFETENSORS_DATASET_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace muster::data {

// The tensor `labels` may be missing with Labels::kIgnored. Errors: those of MakeRowDataset;
// INVALID_ARGUMENT for a file without `inputs` or `labels`; NOT_FOUND etc. for files that cannot be
// opened; DATA_LOSS for a broken file.
absl::StatusOr<std::unique_ptr<Dataset>> OpenSafetensors(const std::vector<std::string>& paths,
                                                         const InputSpec& spec,
                                                         Emptiness emptiness = Emptiness::kRefused,
                                                         Labels has_labels = Labels::kNeeded);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_SAFETENSORS_DATASET_H_
