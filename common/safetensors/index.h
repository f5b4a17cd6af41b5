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

// `path` is used only in errors, which begin with it. Errors:
// - DATA_LOSS: it is not JSON, it has no object `weight_map` or an empty one, a tensor appears
//   twice, or a file's name is not a text.
// - INVALID_ARGUMENT: names of files outside of the folder (absolute, or with ".."); at most 3 of
//   them are listed.
absl::StatusOr<Index> ParseIndex(const uint8_t* data, size_t size, const std::string& path);

}  // namespace muster::safetensors

#endif  // MUSTER_COMMON_SAFETENSORS_INDEX_H_
