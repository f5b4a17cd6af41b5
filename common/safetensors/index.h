// The index of a sharded safetensors model, as Hugging Face writes it
// (model.safetensors.index.json): a JSON object whose `weight_map` names for each tensor the file
// that holds it.
#ifndef MUSTER_COMMON_SAFETENSORS_INDEX_H_
#define MUSTER_COMMON_SAFETENSORS_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace muster::safetensors {

// Tensor -> the file's name, relative to the index's folder and never outside of it.
using Index = std::map<std::string, std::string>;

// `path` is for errors only, which begin with it.
// DATA_LOSS: no JSON, no object `weight_map`, an empty one, a tensor twice, a file's name that is
// no text. INVALID_ARGUMENT: names that leave the folder (absolute, with ".."): all of them, capped
// at 3.
absl::StatusOr<Index> ParseIndex(const uint8_t* data, size_t size, const std::string& path);

}  // namespace muster::safetensors

#endif  // MUSTER_COMMON_SAFETENSORS_INDEX_H_
