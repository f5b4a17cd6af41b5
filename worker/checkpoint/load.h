// Reading a checkpoint: a rank reads the ranges of the files that it needs, and checks them.
#ifndef MUSTER_WORKER_CHECKPOINT_LOAD_H_
#define MUSTER_WORKER_CHECKPOINT_LOAD_H_

#include <compare>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"
#include "worker/checkpoint/state.h"

namespace muster::checkpoint {

// A part of a file that is checked as a whole.
struct Block {
  // The block number that stands for all blocks of a file, or for a file that cannot be opened.
  static constexpr int64_t kWholeFile = -1;
  std::string file;
  int64_t number = 0;
  friend auto operator<=>(const Block&, const Block&) = default;
};
using Blocks = std::set<Block>;

// The state that a checkpoint may contain besides the state to fill.
enum class Surplus {
  kRefuse,  // nothing: training continues from exactly this state
  kIgnore,  // anything: a part of the state is enough
};

// A checkpoint whose manifest has been read. Threading: const.
class Reader {
 public:
  // Reads the manifest, and checks that the files exist and have the sizes in the manifest. If the
  // manifest has no hashes of blocks, also checks the files' headers. NOT_FOUND: there is no
  // manifest, or a file is missing. DATA_LOSS: the list of the damage, capped at 3. Other errors:
  // the list of failed reads.
  static absl::StatusOr<Reader> Open(const std::string& directory);

  const manifest::Manifest& manifest() const { return manifest_; }

  // Bytes [offset, offset + bytes) of a file, whose place in a tensor begins at byte `begin`.
  struct Copy {
    std::string file;
    int64_t offset;
    at::Tensor to;
    int64_t begin;
    int64_t bytes;
  };

  // Returns the copies that fill the pieces that `state` holds, whichever ranks wrote them.
  // FAILED_PRECONDITION with all differences (capped at 3) if the items of `state`, held or not,
  // differ from the saved items. A difference has names, shapes and dtypes, expected and found.
  // Also returns CheckState's errors.
  absl::StatusOr<std::vector<Copy>> Plan(const State& state,
                                         Surplus surplus = Surplus::kRefuse) const;

  enum class Into {
    kTensors,  // the copies' tensors
    kNothing,  // the bytes are only checked
  };

  // Reads once every block that contains a copy or is in `others`, checks the block against its
  // hash, and copies from it. With any copy, the call also reads the blocks without elements of
  // tensors, because no rank would otherwise find a change there. Needs memory for one block.
  // DATA_LOSS: the list of the damage, capped at 3. Other errors: the failed reads, if nothing is
  // damaged. After an error the tensors may contain anything, and `failed` has the blocks that
  // caused the error.
  absl::Status Read(const std::vector<Copy>& copies, Into into, const Blocks& others,
                    Blocks* failed) const;

 private:
  Reader(std::string directory, manifest::Manifest manifest);

  absl::Status CheckFits(const State& state, Surplus surplus) const;

  std::string directory_;
  manifest::Manifest manifest_;
  // The blocks without elements of a tensor: parts of the files' headers.
  Blocks without_elements_;
};

// Calls Open, Plan and Read: fills everything that `state` holds, whatever strategy and world size
// wrote the checkpoint.
absl::StatusOr<manifest::Manifest> Load(const std::string& directory, const State& state,
                                        Surplus surplus = Surplus::kRefuse);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_LOAD_H_
