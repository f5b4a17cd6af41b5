// Makes a folder that Hugging Face's from_pretrained reads from a checkpoint. The checkpoint's
// ranks may be any number; the memory does not depend on its size.
#ifndef MUSTER_CLIENT_CHECKPOINTS_CONSOLIDATE_H_
#define MUSTER_CLIENT_CHECKPOINTS_CONSOLIDATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/modelfolder/plan.h"
#include "common/safetensors/safetensors.h"

namespace muster::checkpoints {

struct ConsolidateOptions {
  safetensors::DType dtype = safetensors::DType::kF32;  // of all float tensors; or kBF16, kF16
  uint64_t max_shard_bytes = modelfolder::kShardBytes;
  // Replace a folder that contains nothing but a model.
  bool overwrite = false;
};

struct Consolidated {
  std::vector<std::string> files;
  uint64_t bytes = 0;  // of all files
  int64_t step = 0;    // of the checkpoint
  // What the folder lacks, and why; sentences for people.
  std::vector<std::string> notes;
};

// Reads the checkpoint `directory`, checks each block, and writes the folder `out` (absolute).
// Errors: those of manifest::TensorReader; those of modelfolder::CheckTarget; OUT_OF_RANGE: a
// number is too large for the dtype; FAILED_PRECONDITION: the manifest does not list all
// parameters; what could not be written. After an error there is no new folder, and an older one is
// unchanged.
absl::StatusOr<Consolidated> Consolidate(const std::string& directory, const std::string& out,
                                         const ConsolidateOptions& options);

}  // namespace muster::checkpoints

#endif  // MUSTER_CLIENT_CHECKPOINTS_CONSOLIDATE_H_
