// The folder that muster.export wrote (docs/reference/exported-format.md): its manifest, its graphs
// and its weights. All contents are checked; nothing in the folder is run.
#ifndef MUSTER_WORKER_MODELS_EXPORTED_FOLDER_H_
#define MUSTER_WORKER_MODELS_EXPORTED_FOLDER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "common/safetensors/tensor_set.h"
#include "worker/models/exported/graph.h"
#include "worker/models/exported/manifest.h"

namespace muster::models::exported {

// The values of parameters and buffers, in one file or in several that an index names.
class Weights {
 public:
  explicit Weights(safetensors::TensorSet files);

  // Returns null if there is no tensor of this name. Valid as long as this object.
  const safetensors::StoredTensor* Find(const std::string& name) const;

 private:
  const safetensors::TensorSet files_;
  std::map<std::string, safetensors::StoredTensor> by_name_;
};

struct Folder {
  Manifest manifest;
  Graph train;
  Graph evaluate;
  std::shared_ptr<const Weights> weights;
  std::map<std::string, at::Tensor> constants;
  // The hash of the manifest, the graphs and the constants.
  std::string hash;
  std::string config;  // the config.json of a model of transformers; empty: none
};

// Errors: those of opening the files; DATA_LOSS: a file that is cut off; INVALID_ARGUMENT: another
// format, tensors that are missing or have other shapes or types, and those of ReadGraph. Each
// names the file.
absl::StatusOr<Folder> OpenFolder(const std::string& path);

// Returns the elements [begin, end) of a tensor, converted to this type, as a flat tensor in new
// memory. Throws ModelError if the file has shrunk.
at::Tensor ReadRange(const safetensors::StoredTensor& tensor, c10::ScalarType type, int64_t begin,
                     int64_t end);

}  // namespace muster::models::exported

#endif  // MUSTER_WORKER_MODELS_EXPORTED_FOLDER_H_
