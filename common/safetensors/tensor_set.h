// All tensors of one safetensors file, or of the files of a sharded model that an index names.
#ifndef MUSTER_COMMON_SAFETENSORS_TENSOR_SET_H_
#define MUSTER_COMMON_SAFETENSORS_TENSOR_SET_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/safetensors/safetensors.h"

namespace muster::safetensors {

// Tensor -> the file's name, relative to the index's folder and never outside of it.
using Index = std::map<std::string, std::string>;

// `path` is used only in errors, which begin with it. Errors:
// - DATA_LOSS: the text is not JSON, it has no object `weight_map` or an empty one, a tensor
//   appears twice, or a file's name is not a text.
// - INVALID_ARGUMENT: names of files outside of the folder (absolute, or with ".."); at most 3 of
//   them are listed.
absl::StatusOr<Index> ParseIndex(const uint8_t* data, size_t size, const std::string& path);

// A tensor in one of the set's files; valid as long as the set.
struct StoredTensor {
  const File* file;
  const Entry* entry;

  const std::string& name() const { return entry->name; }
  // The bytes; may be unaligned.
  const uint8_t* data() const { return file->data(*entry); }
};

// Movable. Threading: const.
class TensorSet {
 public:
  // A path that ends in .json is an index, whose files lie in its folder; any other is one file.
  //
  // Errors of the index and of each file as of ParseIndex and in safetensors.h. Of the files
  // together, every problem at once, capped at 3: files that cannot be opened (the code is then the
  // first one's); INVALID_ARGUMENT for tensors that the file named by the index lacks, that lie in
  // another file or in two, or that the index does not name.
  static absl::StatusOr<TensorSet> Open(const std::string& path);

  // By file, in the order of the data.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

  // For errors: "'name'", in a set of several files "'name' in file".
  std::string Describe(const StoredTensor& tensor) const;

 private:
  explicit TensorSet(std::map<std::string, File> files);

  // By name in the index's folder. The map's nodes, which tensors_ points to, stay where they are.
  std::map<std::string, File> files_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace muster::safetensors

#endif  // MUSTER_COMMON_SAFETENSORS_TENSOR_SET_H_
