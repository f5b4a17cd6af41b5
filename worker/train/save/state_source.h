// What is written of a session: the live state, and the checks before a file of it is begun.
#ifndef MUSTER_WORKER_TRAIN_SAVE_STATE_SOURCE_H_
#define MUSTER_WORKER_TRAIN_SAVE_STATE_SOURCE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/state.h"

namespace muster::train {

// Threading: the session's thread.
class StateSource {
 public:
  virtual ~StateSource() = default;

  // Waits until this rank has all parameters as they are after the last step, and checks that the
  // buffers are finite and that the parameters are the same on all ranks. A collective. Errors: the
  // communicators'; OUT_OF_RANGE: a buffer is not finite; DATA_LOSS: the ranks' parameters differ.
  virtual absl::Status AwaitState() = 0;
  // The same, and OUT_OF_RANGE also if a parameter is not finite.
  virtual absl::Status AwaitWeights() = 0;
  // Everything that a checkpoint holds as tensors: the live ones, not copies. A change of the
  // trained parameters replaces them.
  virtual checkpoint::State State() const = 0;
  // What files with this state say about its parameters.
  virtual absl::StatusOr<checkpoint::ModelRecords> Records(
      const checkpoint::State& state) const = 0;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVE_STATE_SOURCE_H_
