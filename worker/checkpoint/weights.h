// Writes model weights as safetensors files with Hugging Face names; load_weights.h reads them.
#ifndef MUSTER_WORKER_CHECKPOINT_WEIGHTS_H_
#define MUSTER_WORKER_CHECKPOINT_WEIGHTS_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/manifest/tensor_reader.h"
#include "common/safetensors/safetensors.h"
#include "worker/models/model.h"

namespace muster::checkpoint {

// Called with the index of each parameter before it is read, in order, so that the caller can
// provide values that are not always in memory. If it returns an error, the writing ends.
using BeforeRead = std::function<absl::Status(size_t parameter)>;

// Writes parameters as float32, and buffers in their own type, to a new file `path`, and syncs it;
// an old file of that name is removed first. After an error there is no such file.
absl::Status WriteWeights(const std::string& path, const std::vector<models::Parameter>& parameters,
                          const std::vector<models::Buffer>& buffers,
                          const safetensors::Metadata& metadata,
                          const BeforeRead& before_read = {});

// The same file with the values of a checkpoint in place of the model's, which need not be in
// memory: the numbers of each parameter are those of `slot`, those of each buffer of the slot
// "buffer". Needs memory for a few blocks. FAILED_PRECONDITION: the checkpoint does not have such a
// tensor of this shape and type. Other errors: the reader's, or those of files.
absl::Status WriteStoredWeights(const std::string& path,
                                const std::vector<models::Parameter>& parameters,
                                const std::vector<models::Buffer>& buffers,
                                const safetensors::Metadata& metadata, const std::string& slot,
                                manifest::TensorReader* reader);

// Writes the Hugging Face config.json beside the weights `path`, for a model that has one;
// `AutoModelForCausalLM.from_pretrained(folder)` opens the two when `path` ends in
// model.safetensors. Atomically.
absl::Status WriteConfig(const std::string& path, const models::Model& model);

// WriteWeights with the metadata {"format": "pt"}, atomically; makes the folder.
absl::Status SaveWeights(const std::string& path, const std::vector<models::Parameter>& parameters,
                         const std::vector<models::Buffer>& buffers = {});

// Calls SaveWeights for a model, and WriteConfig.
absl::Status ExportModel(const std::string& path, const models::Model& model);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_WEIGHTS_H_
