// Reading a checkpoint: a rank reads the ranges of the files that it needs, and checks what it
// reads.
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
  // All blocks of a file, or that the file cannot be opened.
  static constexpr int64_t kWholeFile = -1;
  std::string file;
  int64_t number = 0;
  friend auto operator<=>(const Block&, const Block&) = default;
};
using Blocks = std::set<Block>;

// What a checkpoint may contain besides the state that is filled.
enum class Surplus {
  kRefuse,  // nothing: training continues from exactly this state
  kIgnore,  // anything: a part of the state is enough
};

// A checkpoint whose manifest has been read. Threading: const.
class Reader {
 public:
  // Reads the manifest, and checks that the files exist and have its sizes; if it has no hashes of
  // blocks, also the files' headers.
  // NOT_FOUND: no manifest, or a file is missing; DATA_LOSS: what is damaged, capped at 3; other
  // errors: what could not be read.
  static absl::StatusOr<Reader> Open(const std::string& directory);

  const manifest::Manifest& manifest() const { return manifest_; }

  // Bytes [offset, offset + bytes) of a file that go to a tensor, where they begin at byte `begin`.
  struct Copy {
    std::string file;
    int64_t offset;
    at::Tensor to;
    int64_t begin;
    int64_t bytes;
  };

  // The copies that fill the pieces that `state` holds. It does not matter which ranks wrote them.
  // FAILED_PRECONDITION with all differences (capped at 3) if the items of `state`, held or not,
  // differ from the saved ones: names, shapes and dtypes, expected and found. CheckState's errors.
  absl::StatusOr<std::vector<Copy>> Plan(const State& state,
                                         Surplus surplus = Surplus::kRefuse) const;

  enum class Into {
    kTensors,  // of the copies
    kNothing,  // the bytes are only checked
  };

  // Reads every block in which a copy or one of `others` lies once, checks it against its hash, and
  // copies from it. Where there are copies, also the blocks in which no element of any tensor lies:
  // no rank would find that one of them has changed. Needs memory for one block. DATA_LOSS: what is
  // damaged, capped at 3. Other errors: what could not be read, if nothing is damaged. After an
  // error the tensors may contain anything, and the blocks that caused it have been added to
  // `failed`.
  absl::Status Read(const std::vector<Copy>& copies, Into into, const Blocks& others,
                    Blocks* failed) const;

 private:
  Reader(std::string directory, manifest::Manifest manifest);

  absl::Status CheckFits(const State& state, Surplus surplus) const;

  std::string directory_;
  manifest::Manifest manifest_;
  // In which no element of a tensor lies: parts of the files' headers.
  Blocks without_elements_;
};

// Open, Plan, Read: fills everything that `state` holds, whatever the strategy and the world size
// that wrote it.
absl::StatusOr<manifest::Manifest> Load(const std::string& directory, const State& state,
                                        Surplus surplus = Surplus::kRefuse);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_LOAD_H_
