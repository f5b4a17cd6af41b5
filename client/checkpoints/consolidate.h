// Makes a folder for Hugging Face's from_pretrained from a checkpoint of any number of ranks. The
// memory needed does not depend on the size of the checkpoint.
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
  // Whether to replace a folder that contains nothing but a model.
  bool overwrite = false;
};

struct Consolidated {
  std::vector<std::string> files;
  uint64_t bytes = 0;  // of all files
  int64_t step = 0;    // of the checkpoint
  // Sentences for people: what the folder lacks, and why.
  std::vector<std::string> notes;
};

// Reads the checkpoint `directory`, checks each block, and writes the folder `out` (absolute).
// After an error there is no new folder, and an older one is unchanged. Errors: those of
// manifest::TensorReader and modelfolder::CheckTarget, and those of writing. OUT_OF_RANGE: a number
// is too large for the dtype. FAILED_PRECONDITION: the manifest does not list all parameters.
absl::StatusOr<Consolidated> Consolidate(const std::string& directory, const std::string& out,
                                         const ConsolidateOptions& options);

}  // namespace muster::checkpoints

#endif  // MUSTER_CLIENT_CHECKPOINTS_CONSOLIDATE_H_
