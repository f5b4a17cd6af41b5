// The weights of all ranks in the form of Hugging Face (common/modelfolder): a folder, or one file.
// The ranks write it together (write_together.h).
#ifndef MUSTER_WORKER_CHECKPOINT_MODEL_OUTPUT_H_
#define MUSTER_WORKER_CHECKPOINT_MODEL_OUTPUT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/modelfolder/plan.h"
#include "common/safetensors/safetensors.h"
#include "worker/checkpoint/state.h"
#include "worker/checkpoint/write_together.h"

namespace muster::checkpoint {

// The outputs below consist of weights (IsWeight).

struct ModelFolderOptions {
  std::string path;       // absolute
  std::string temporary;  // beside `path`, for writing; no other process uses this name
  safetensors::DType dtype = safetensors::DType::kF32;  // of float tensors; or kBF16, kF16
  uint64_t max_shard_bytes = modelfolder::kShardBytes;
  bool overwrite = false;  // replace a folder that contains nothing but a model
  // The identity of the writer (exports::Sign). A folder that this writer has signed is replaced,
  // too.
  std::string writer;
  safetensors::Metadata metadata;
};

// The contents of a folder that has its final name, besides the weights. On rank 0.
struct ModelFolderContents {
  std::vector<std::string> files;  // all of them
  uint64_t bytes = 0;              // of the files without weights
  // The missing contents, with the reasons; sentences for people.
  std::vector<std::string> notes;
};

// `state`: weights only. `contents`, which outlives the output, is filled when the folder gets its
// final name. Errors of the output: modelfolder::CheckTarget's and PlaceFolder's.
absl::StatusOr<std::unique_ptr<JointOutput>> ModelFolderOutput(const ModelFolderOptions& options,
                                                               const State& state,
                                                               const ModelRecords& records,
                                                               ModelFolderContents* contents);

struct WeightsFileOptions {
  std::string path;        // absolute
  std::string temporary;   // as above
  bool overwrite = false;  // any file; otherwise only a file of a job of the same name
  std::string job_name;
  safetensors::Metadata metadata;
};

// Returns an output in float32, with a config.json beside it if transformers has the model. Errors
// of the output: exports::CheckTarget's and CheckConfig's.
absl::StatusOr<std::unique_ptr<JointOutput>> WeightsFileOutput(const WeightsFileOptions& options,
                                                               const State& state,
                                                               const ModelRecords& records);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_MODEL_OUTPUT_H_
