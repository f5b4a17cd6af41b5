// Writes model weights as safetensors files with Hugging Face names; load_weights.h reads them.
#ifndef MUSTER_WORKER_CHECKPOINT_WEIGHTS_H_
#define MUSTER_WORKER_CHECKPOINT_WEIGHTS_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/manifest/tensor_reader.h"
#include "common/safetensors/safetensors.h"
#include "worker/models/model.h"

namespace muster::checkpoint {

// A function that is called with the index of each parameter before the parameter is read, in
// order. The caller can then provide values that are not always in memory. An error ends the
// writing.
using BeforeRead = std::function<absl::Status(size_t parameter)>;

// The rows that a file has of some tensors, by name: the first ones.
using FirstRows = std::map<std::string, int64_t>;

// Returns FirstRows for tensors with a row for each token, so that a file has only the first
// `vocab_size` tokens. INVALID_ARGUMENT: the model has no such tensor, or one of fewer rows.
absl::StatusOr<FirstRows> FirstTokens(const models::Model& model, int64_t vocab_size);

// Writes parameters as float32, and buffers in their own type, to a new file `path`, and syncs the
// file. An old file of this name is removed first. After an error there is no such file.
absl::Status WriteWeights(const std::string& path, const std::vector<models::Parameter>& parameters,
                          const std::vector<models::Buffer>& buffers,
                          const safetensors::Metadata& metadata, const BeforeRead& before_read = {},
                          const FirstRows& rows = {});

// Writes the same file with the values of a checkpoint, so that the model's values need not be in
// memory. Parameters take the numbers of `slot`, and buffers those of the slot "buffer". Needs
// memory for a few blocks. FAILED_PRECONDITION: the checkpoint has no such tensor of this shape and
// type. Other errors: the reader's, or those of files.
absl::Status WriteStoredWeights(const std::string& path,
                                const std::vector<models::Parameter>& parameters,
                                const std::vector<models::Buffer>& buffers,
                                const safetensors::Metadata& metadata, const std::string& slot,
                                manifest::TensorReader* reader, const FirstRows& rows = {});

// Writes a Hugging Face config.json beside the weights `path`, unless `config` is empty.
// `AutoModelForCausalLM.from_pretrained(folder)` opens both files if `path` ends in
// model.safetensors. Atomically.
absl::Status WriteConfig(const std::string& path, const std::string& config);

// WriteWeights with the metadata {"format": "pt"}, atomically; makes the folder.
absl::Status SaveWeights(const std::string& path, const std::vector<models::Parameter>& parameters,
                         const std::vector<models::Buffer>& buffers = {});

// Calls SaveWeights for a model, and WriteConfig.
absl::Status ExportModel(const std::string& path, const models::Model& model);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_WEIGHTS_H_
