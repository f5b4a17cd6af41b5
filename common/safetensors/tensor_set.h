// All tensors of one safetensors file, or of the files of a sharded model, which an index names.
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

// Tensor -> the file's name, relative to the index's folder and never outside of the folder.
using Index = std::map<std::string, std::string>;

// Parses an index. `path` is only for errors, which begin with it. Errors:
// - DATA_LOSS: the text is not JSON, `weight_map` is no object or empty, a tensor appears twice, or
//   a file's name is not a text.
// - INVALID_ARGUMENT: names of files outside of the folder (absolute, or with ".."), at most 3 in
//   the list.
absl::StatusOr<Index> ParseIndex(const uint8_t* data, size_t size, const std::string& path);

// Returns the path of the weights in a model folder of transformers: model.safetensors, or
// model.safetensors.index.json if only the index exists.
std::string PathOfModel(const std::string& folder);

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
  // Opens an index, whose files lie in its folder, if the path ends in .json; otherwise one file.
  //
  // Errors: of the index as in ParseIndex, of each file as in safetensors.h. Problems of several
  // files are reported together, at most 3. The code is that of the first file that cannot be
  // opened. INVALID_ARGUMENT: a tensor is not in its file by the index, is in another file or in
  // two, or is missing in the index.
  static absl::StatusOr<TensorSet> Open(const std::string& path);

  // The tensors by file, in the order of the data.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

  // The tensor for errors: "'name'", or "'name' in file" in a set of several files.
  std::string Describe(const StoredTensor& tensor) const;

 private:
  explicit TensorSet(std::map<std::string, File> files);

  // The files by name in the index's folder. tensors_ points to the map's nodes, which never move.
  std::map<std::string, File> files_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace muster::safetensors

#endif  // MUSTER_COMMON_SAFETENSORS_TENSOR_SET_H_
