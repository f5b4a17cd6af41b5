// Model weights as one safetensors file with Hugging Face names: loading into parameters, saving.
#ifndef MUSTER_WORKER_CHECKPOINT_WEIGHTS_H_
#define MUSTER_WORKER_CHECKPOINT_WEIGHTS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/models/model.h"

namespace muster::checkpoint {

using NameResolver = std::function<models::WeightName(const std::string& name_in_file)>;

// Copies the file's tensors (F32, F16 or BF16, converted to float32) into `parameters`, all or
// none. Errors: INVALID_ARGUMENT with every problem at once, capped at 3 (missing and unexpected
// names, shapes expected and found, dtypes, two names of one parameter whose values differ);
// DATA_LOSS for a broken file; NOT_FOUND etc. when it cannot be opened.
absl::Status LoadWeights(const std::string& path, const std::vector<models::Parameter>& parameters,
                         const NameResolver& resolve);
absl::Status LoadWeights(const std::string& path, const models::Model& model);

// Writes the parameters as float32 with the metadata {"format": "pt"}, atomically; makes the
// folder.
absl::Status SaveWeights(const std::string& path, const std::vector<models::Parameter>& parameters);

// SaveWeights plus, when the model has one, its Hugging Face config.json in the same folder:
// `AutoModelForCausalLM.from_pretrained(folder)` opens the result when `path` ends in
// model.safetensors.
absl::Status ExportModel(const std::string& path, const models::Model& model);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_WEIGHTS_H_
