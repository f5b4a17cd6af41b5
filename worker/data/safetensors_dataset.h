// Rows from safetensors files: `inputs` float32 [N, ...] and `labels` int64 [N] in each. Files of a
// list follow one another.
#ifndef MUSTER_WORKER_DATA_SAFETENSORS_DATASET_H_
#define MUSTER_WORKER_DATA_SAFETENSORS_DATASET_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/dataset.h"

namespace muster::data {

// Errors: INVALID_ARGUMENT for an empty list, a model that does not take rows, a missing or extra
// shape, a label outside [0, spec.classes), files whose rows differ in shape, or no row at all;
// NOT_FOUND etc. for files that cannot be opened; DATA_LOSS for a broken file.
absl::StatusOr<std::unique_ptr<Dataset>> OpenSafetensors(const std::vector<std::string>& paths,
                                                         const InputSpec& spec);

}  // namespace muster::data

#endif  // MUSTER_WORKER_DATA_SAFETENSORS_DATASET_H_
