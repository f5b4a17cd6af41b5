// The contents of a pickle: plain values and tensors.
#ifndef MUSTER_COMMON_TORCHFILE_PICKLE_DOCUMENT_H_
#define MUSTER_COMMON_TORCHFILE_PICKLE_DOCUMENT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/safetensors/safetensors.h"

namespace muster::torchfile {

// A tensor: a view of the storage with this key (the file data/KEY of a torch file).
struct TensorValue {
  std::string storage;
  safetensors::DType dtype = safetensors::DType::kF32;
  int64_t storage_elements = 0;
  int64_t offset = 0;  // in elements
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};

// A pickled value. Values may be shared, so they refer to each other by number; no value contains
// itself.
struct PickleDocument {
  enum class Kind { kNone, kBool, kInt, kFloat, kText, kList, kTuple, kDict, kTensor };
  struct Node {
    Kind kind = Kind::kNone;
    int64_t integer = 0;  // of kInt; of kBool 0 or 1
    double number = 0;    // of kFloat
    std::string text;     // of kText
    // The values of a list or tuple; keys and values of a dict in turn, in the order in which they
    // were set. A key may appear twice: the last value counts.
    std::vector<size_t> items;
    size_t tensor = 0;  // of kTensor: its number in `tensors`
  };
  std::vector<Node> nodes;
  std::vector<TensorValue> tensors;
  size_t root = 0;
};

// Returns the root and all nodes that it contains, each once. INVALID_ARGUMENT: a value contains
// itself, or values are nested deeper than 100. Pure.
absl::StatusOr<std::vector<size_t>> ReachableNodes(const PickleDocument& document);

}  // namespace muster::torchfile

#endif  // MUSTER_COMMON_TORCHFILE_PICKLE_DOCUMENT_H_
