// How commands leave out samples of the training data.
#ifndef MUSTER_WORKER_TRAIN_DATA_DATA_SKIPPER_H_
#define MUSTER_WORKER_TRAIN_DATA_DATA_SKIPPER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/muster/v1/operation.pb.h"

namespace muster::train {

class DataSkipper {
 public:
  virtual ~DataSkipper() = default;

  // Leaves out the samples that the next steps would take, and says which. With `dry_run` it only
  // says so. `samples`: of all ranks together, as the sampler's cursor counts them; at least 1.
  // FAILED_PRECONDITION, the same on all ranks: no step of the stage would be left.
  virtual absl::StatusOr<v1::SkippedData> Skip(int64_t samples, bool dry_run) = 0;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_DATA_DATA_SKIPPER_H_
