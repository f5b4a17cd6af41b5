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
#include "common/safetensors/safetensors.h"
#include "worker/models/exported/graph.h"
#include "worker/models/exported/manifest.h"

namespace muster::models::exported {

struct Folder {
  Manifest manifest;
  Graph train;
  Graph evaluate;
  std::shared_ptr<const safetensors::File> weights;
  std::map<std::string, at::Tensor> constants;
  // The hash of the manifest, the graphs and the constants.
  std::string hash;
  std::string config;  // the config.json of a model of transformers; empty: none
};

// Errors: those of opening the files; DATA_LOSS: a file that is cut off; INVALID_ARGUMENT: another
// format, tensors that are missing or have other shapes or types, and those of ReadGraph. Each
// names the file.
absl::StatusOr<Folder> OpenFolder(const std::string& path);

// Returns the elements [begin, end) of a tensor of this type, as a flat tensor in new memory.
// Throws ModelError if the file has shrunk.
at::Tensor ReadRange(const safetensors::File& file, const safetensors::Entry& entry,
                     c10::ScalarType type, int64_t begin, int64_t end);

}  // namespace muster::models::exported

#endif  // MUSTER_WORKER_MODELS_EXPORTED_FOLDER_H_
