// What a session starts from: a checkpoint of its job, another job's checkpoint, or a file with the
// optimizer's state.
#ifndef MUSTER_WORKER_TRAIN_SESSION_START_FROM_H_
#define MUSTER_WORKER_TRAIN_SESSION_START_FROM_H_

#include "absl/status/status.h"
#include "worker/train/session/loaded.h"

namespace muster::train {

// A part of Load, and a collective: opens the job's checkpoints, and fills `loaded` from one of
// them, or from what the job names to begin with. The model is made, and what trains it.
absl::Status StartFrom(Loaded& loaded);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_START_FROM_H_
