// Reads parts of one file of a checkpoint, and checks them against the hashes of the manifest.
#ifndef MUSTER_WORKER_CHECKPOINT_CHECKED_FILE_H_
#define MUSTER_WORKER_CHECKPOINT_CHECKED_FILE_H_

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "common/manifest/manifest.h"

namespace muster::checkpoint {

// A part of a file that is checked as a whole.
struct Block {
  // All blocks of a file, or that the file cannot be opened.
  static constexpr int64_t kWholeFile = -1;
  std::string file;
  int64_t number = 0;
  friend auto operator<=>(const Block&, const Block&) = default;
};
using Blocks = std::set<Block>;

// Threading: one thread.
class CheckedFile {
 public:
  // The file of this record in `directory`; it is opened in Read.
  CheckedFile(const std::string& directory, const manifest::FileRecord& record);

  // Bytes [offset, offset + bytes), which lie in the file, go to a tensor, where they begin at byte
  // `begin`. An undefined tensor: they are only checked.
  struct Range {
    int64_t offset;
    int64_t bytes;
    at::Tensor to;
    int64_t begin;
  };
  void Want(Range range);
  // The block with this number is checked, too, if the file has it; Block::kWholeFile: all blocks.
  void Check(int64_t block);

  // Reads each block in which something is wanted once, in order. Returns the errors by block
  // (Block::kWholeFile: of the file): DATA_LOSS if the block's hash or the file's size is not the
  // recorded one. If a block cannot be read, the later ones are not tried.
  std::map<int64_t, absl::Status> Read();

 private:
  // Gives each range its bytes that lie in this block.
  void Distribute(int64_t block, const char* data, int64_t bytes);
  std::map<int64_t, absl::Status> ReadFrom(int fd);

  const std::string path_;
  const manifest::FileRecord& record_;
  std::vector<Range> ranges_;  // by offset, once Read has begun
  size_t first_ = 0;           // the first range that does not end before the current block
  std::set<int64_t> wanted_;   // numbers of blocks
};

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_CHECKED_FILE_H_
