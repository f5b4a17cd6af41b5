// Reading a checkpoint: all of it is verified before any of it is used.
#ifndef MUSTER_WORKER_CHECKPOINT_LOAD_H_
#define MUSTER_WORKER_CHECKPOINT_LOAD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"
#include "common/safetensors/safetensors.h"
#include "worker/checkpoint/state.h"

namespace muster::checkpoint {

// What a checkpoint may contain besides the state that is filled.
enum class Surplus {
  kRefuse,  // nothing: training continues from exactly this state
  kIgnore,  // anything: parameters alone are enough for evaluation
};

// A verified checkpoint, mapped. Threading: const.
class VerifiedCheckpoint {
 public:
  // Reads everything once, against the sizes and hashes of the manifest.
  // NOT_FOUND: no manifest; DATA_LOSS: what is broken, capped at 3.
  static absl::StatusOr<VerifiedCheckpoint> Open(const std::string& directory);

  const manifest::Manifest& manifest() const { return manifest_; }

  // Bytes of a file that go to a tensor, where they begin at byte `begin`.
  struct Copy {
    const uint8_t* from;
    at::Tensor to;
    int64_t begin;
    size_t bytes;
  };

  // The copies from the mapped files that fill the pieces that `state` holds, by file. It does not
  // matter which ranks wrote them. Valid while this object and the tensors live.
  // FAILED_PRECONDITION with all differences (capped at 3) if the items of `state`, held or not,
  // differ from the saved ones: names, shapes and dtypes, expected and found. CheckState's errors.
  absl::StatusOr<std::vector<Copy>> PlanCopies(const State& state,
                                               Surplus surplus = Surplus::kRefuse) const;

 private:
  VerifiedCheckpoint(manifest::Manifest manifest, std::map<std::string, safetensors::File> files);

  absl::Status CheckFits(const State& state, Surplus surplus) const;

  manifest::Manifest manifest_;
  std::map<std::string, safetensors::File> files_;
};

// Does not fail.
void Fill(const std::vector<VerifiedCheckpoint::Copy>& copies);

// Open, PlanCopies, Fill: fills everything that `state` holds, whatever the strategy and the world
// size that wrote it. After an error nothing was changed.
absl::StatusOr<manifest::Manifest> Load(const std::string& directory, const State& state,
                                        Surplus surplus = Surplus::kRefuse);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_LOAD_H_
