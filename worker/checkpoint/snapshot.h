// A copy of what one rank writes of a state, so that training can change the state while the copy
// is written.
#ifndef MUSTER_WORKER_CHECKPOINT_SNAPSHOT_H_
#define MUSTER_WORKER_CHECKPOINT_SNAPSHOT_H_

#include <cstdint>

#include "worker/checkpoint/state.h"

namespace muster::checkpoint {

// The same items and writers; `rank` holds copies of exactly what it writes, in memory of the host
// (pinned, if the state is on a GPU). The copies are complete when this returns. What the rank
// writes and does not hold is left out; CheckWritable finds that.
State Snapshot(const State& state, int rank);

// How many bytes of tensors `rank` writes.
int64_t BytesWritten(const State& state, int rank);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_SNAPSHOT_H_
