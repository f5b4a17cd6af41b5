// Model weights as safetensors files with Hugging Face names: loading into parameters and buffers,
// saving.
#ifndef MUSTER_WORKER_CHECKPOINT_WEIGHTS_H_
#define MUSTER_WORKER_CHECKPOINT_WEIGHTS_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/safetensors/safetensors.h"
#include "worker/models/deferred_values.h"
#include "worker/models/model.h"

namespace muster::checkpoint {

// Copies the tensors of `path`, a safetensors file or the index of a sharded model (a name that
// ends in .json), into the model's parameters and buffers; either all tensors are copied or none. A
// float32 tensor of the model may be F32, F16 or BF16 in the file; an int64 tensor must be I64.
// BatchNorm's num_batches_tracked may be missing and then stays as it is. If the file has the name
// that transformers gives it (model.safetensors, model.safetensors.index.json) and a config.json
// lies beside it, the config.json must fit the model, too. Errors: INVALID_ARGUMENT with all
// problems, of which at most 3 are listed (missing and unexpected names, shapes expected and found,
// dtypes, two names of one parameter whose values differ, values that are not finite although the
// model's own values are); those of safetensors::TensorSet::Open (DATA_LOSS for a broken file,
// NOT_FOUND etc. when one cannot be opened, tensors that are not where the index says). `deferred`:
// if parameters have no memory of their own, their values are kept there, and are read from the
// files again whenever they are needed.
absl::Status LoadWeights(const std::string& path, const models::Model& model,
                         models::DeferredValues* deferred = nullptr);

// Called with the index of each parameter before it is read, in order, so that the caller can
// provide values that are not always in memory. If it returns an error, the writing ends.
using BeforeRead = std::function<absl::Status(size_t parameter)>;

// Writes parameters as float32, and buffers in their own type, to a new file `path`, and syncs it;
// an old file of that name is removed first. After an error there is no such file.
absl::Status WriteWeights(const std::string& path, const std::vector<models::Parameter>& parameters,
                          const std::vector<models::Buffer>& buffers,
                          const safetensors::Metadata& metadata,
                          const BeforeRead& before_read = {});

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
