// Reads the tensors of a checkpoint from all its files, and checks the bytes. Needs memory for a
// few blocks, however large the checkpoint is.
#ifndef MUSTER_COMMON_MANIFEST_TENSOR_READER_H_
#define MUSTER_COMMON_MANIFEST_TENSOR_READER_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"

namespace muster::manifest {

// Reads bytes [offset, offset + bytes) of the open file `path`. A read, and not a mapping, so that
// a failed read is an error and not a signal. DATA_LOSS: the file ends earlier.
absl::Status ReadAt(int fd, int64_t offset, char* to, int64_t bytes, const std::string& path);

// DATA_LOSS unless `data` has the hash of block `number` in the file's record.
absl::Status CheckBlock(const FileRecord& record, int64_t number, const char* data, int64_t bytes,
                        const std::string& path);

// A tensor of a checkpoint with all its pieces.
struct StoredTensor {
  std::string slot;
  std::string parameter;
  std::vector<int64_t> shape;
  std::string dtype;
  int64_t elements = 0;
  int64_t element_bytes = 0;
  std::vector<const Piece*> pieces;  // not empty ones, by `begin`

  // "slot/parameter".
  std::string name() const { return slot + "/" + parameter; }
};

// Movable. Threading: one thread.
class TensorReader {
 public:
  // Reads the manifest, and checks that it is complete and that the files have their sizes. Reads
  // and checks all of a checkpoint without hashes of blocks. Errors: as of Read, CheckComplete,
  // CheckFiles and Verify; DATA_LOSS: a dtype that no file has.
  static absl::StatusOr<TensorReader> Open(const std::string& directory);

  const std::string& directory() const { return directory_; }
  const Manifest& manifest() const { return *manifest_; }
  // The tensors in the order of the manifest's pieces.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // The tensor; null if there is none.
  const StoredTensor* Find(const std::string& slot, const std::string& parameter) const;

  // Reads elements [begin, begin + count) of one of tensors(). The elements must exist. DATA_LOSS:
  // a block of a file does not have its hash. Other errors: the file cannot be read.
  absl::Status Read(const StoredTensor& tensor, int64_t begin, int64_t count, char* to);

 private:
  TensorReader(std::string directory, Manifest manifest);
  absl::Status FindTensors();
  absl::Status ReadBytes(const FileRecord& file, uint64_t offset, uint64_t bytes, char* to);
  // The block, from memory (the newest blocks) or from its file.
  absl::StatusOr<const std::vector<char>*> BlockOf(const FileRecord& file, uint64_t number);

  std::string directory_;
  // The manifest, on the heap because the tensors point into it.
  std::unique_ptr<Manifest> manifest_;
  std::vector<StoredTensor> tensors_;
  std::map<std::pair<std::string, std::string>, size_t> by_name_;
  std::map<std::string, const FileRecord*> files_;
  struct Block {
    const FileRecord* file;
    uint64_t number;
    std::vector<char> bytes;
  };
  std::list<Block> blocks_;  // the newest one first
};

}  // namespace muster::manifest

#endif  // MUSTER_COMMON_MANIFEST_TENSOR_READER_H_
