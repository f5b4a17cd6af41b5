// Which rank writes which parts of a state, and the file of one rank in a checkpoint.
#ifndef MUSTER_WORKER_CHECKPOINT_SHARD_H_
#define MUSTER_WORKER_CHECKPOINT_SHARD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/ScalarType.h"
#include "common/files/disk.h"
#include "common/layout/placement.h"
#include "common/manifest/manifest.h"
#include "worker/checkpoint/state.h"

namespace muster::checkpoint {

// "rank-3.safetensors"
std::string ShardName(int64_t rank);

// "F32": the type of an item that CheckState lets through, as the manifest names it.
std::string DTypeName(at::ScalarType type);

// CheckState, and in addition INVALID_ARGUMENT, with the rank and the item, unless the `world_size`
// ranks together write each element of the state once, each rank writes at most one range of an
// item, and `rank` holds what it writes.
absl::Status CheckWritable(const State& state, int64_t rank, int64_t world_size);

// The entries of each rank's file: the ranges of State::written, and the items without elements, as
// empty ranges. First come those with few elements, then the others, each group in the order of the
// items. An item without elements is in the file in which the next item with elements begins; if
// there is none, in the last file. Requires a state for which CheckWritable is OK.
std::vector<std::vector<layout::Range>> Parts(const State& state);

// The manifest's entries for these parts.
absl::StatusOr<std::vector<manifest::Piece>> Pieces(
    const State& state, const std::vector<std::vector<layout::Range>>& parts);

// Streams `part`, which is Parts(state)[rank], into `directory`/rank-R.safetensors, hashing, and
// syncs it. After an error there is no file. INVALID_ARGUMENT, before a file is made: an error of
// CheckState, or `part` contains more than `held`.
absl::StatusOr<manifest::FileRecord> WriteShard(const std::string& directory, int64_t rank,
                                                const std::vector<layout::Range>& part,
                                                const State& state,
                                                files::Disk& disk = files::Disk::Real());

// A copy of what `rank` writes of a state, so that training can change the state while the copy is
// written: the same items and writers; the rank holds copies of exactly what it writes, in memory
// of the host (pinned, if the state is on a GPU). The copies are complete when this returns. What
// the rank writes and does not hold is left out; CheckWritable finds that.
State Snapshot(const State& state, int rank);

// How many bytes of tensors `rank` writes.
int64_t BytesWritten(const State& state, int rank);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_SHARD_H_
