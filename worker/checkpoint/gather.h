// The optimizer's state of all ranks as one file for Python (common/optimizerfile), which the ranks
// write together (write_together.h).
#ifndef MUSTER_WORKER_CHECKPOINT_GATHER_H_
#define MUSTER_WORKER_CHECKPOINT_GATHER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/optimizerfile/optimizer_file.h"
#include "worker/checkpoint/state.h"
#include "worker/checkpoint/write_together.h"

namespace muster::checkpoint {

struct GatherOptions {
  std::string path;       // absolute
  std::string temporary;  // beside `path`, for writing; no other process uses this name
  optimizerfile::Format format = optimizerfile::Format::kTorch;
  optimizerfile::Key key = optimizerfile::Key::kIndex;
  bool overwrite = false;  // replace a file that exists
  // The identity of the writer (exports::Sign). A file that this writer has signed is replaced,
  // too.
  std::string writer;
  bool for_owner = false;  // nobody else may read the file
  // The schedule factor of optimizerfile::Contents.
  double schedule_factor = 1;
};

// Returns the output for the optimizer's items in `state`. INVALID_ARGUMENT: an item is not
// float32, or the optimizer is of an unknown kind. Errors of the output: ALREADY_EXISTS: there is a
// file, and `overwrite` is not set; FAILED_PRECONDITION: the path exists, but is no regular file.
absl::StatusOr<std::unique_ptr<JointOutput>> OptimizerStateOutput(const GatherOptions& options,
                                                                  const State& state,
                                                                  const ModelRecords& records);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_GATHER_H_
