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
// ends in .json), into the model's parameters and buffers, all or none. What the model calls
// float32 may be F32, F16 or BF16, int64 is I64. BatchNorm's num_batches_tracked may be missing and
// then stays as it is. Where a file that is named as transformers does (model.safetensors,
// model.safetensors.index.json) has a config.json beside it, that must be such a model's, too.
// Errors: INVALID_ARGUMENT with every problem at once, capped at 3 (missing and unexpected names,
// shapes expected and found, dtypes, two names of one parameter whose values differ, numbers that
// are not finite where the model's own are); those of safetensors::TensorSet::Open (DATA_LOSS for a
// broken file, NOT_FOUND etc. when one cannot be opened, tensors that are not where the index
// says). deferred: whose values these are where parameters have no memory of their own; then they
// are read from the files anew whenever they are asked for.
absl::Status LoadWeights(const std::string& path, const models::Model& model,
                         models::DeferredValues* deferred = nullptr);

// Called before each parameter is read, in their order, with its index: for those whose values are
// not always there. An error of it ends the writing.
using BeforeRead = std::function<absl::Status(size_t parameter)>;

// Writes parameters as float32 and buffers as what they are to a new file `path`, and fsyncs it; an
// old one of that name is removed first. After an error there is none.
absl::Status WriteWeights(const std::string& path, const std::vector<models::Parameter>& parameters,
                          const std::vector<models::Buffer>& buffers,
                          const safetensors::Metadata& metadata,
                          const BeforeRead& before_read = {});

// What lies beside the weights `path` of a model that has one: its Hugging Face config.json;
// `AutoModelForCausalLM.from_pretrained(folder)` opens the two when `path` ends in
// model.safetensors. Atomically.
absl::Status WriteConfig(const std::string& path, const models::Model& model);

// WriteWeights with the metadata {"format": "pt"}, atomically; makes the folder.
absl::Status SaveWeights(const std::string& path, const std::vector<models::Parameter>& parameters,
                         const std::vector<models::Buffer>& buffers = {});

// SaveWeights of a model, and WriteConfig.
absl::Status ExportModel(const std::string& path, const models::Model& model);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_WEIGHTS_H_
