// The division of a state among the ranks for writing, and the file of one rank in a checkpoint.
#ifndef MUSTER_WORKER_CHECKPOINT_SHARD_H_
#define MUSTER_WORKER_CHECKPOINT_SHARD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/ScalarType.h"
#include "common/files/disk.h"
#include "common/manifest/manifest.h"
#include "common/sharding/placement.h"
#include "worker/checkpoint/state.h"

namespace muster::checkpoint {

// "rank-3.safetensors"
std::string ShardName(int64_t rank);

// Returns the manifest's name for a type that CheckState accepts: "F32".
std::string DTypeName(at::ScalarType type);

// Checks `state` as CheckState does. INVALID_ARGUMENT, with the rank and the item, unless also:
// - the `world_size` ranks together write each element of the state once;
// - each rank writes at most one range of an item;
// - `rank` holds everything that it writes.
absl::Status CheckWritable(const State& state, int64_t rank, int64_t world_size);

// Returns the entries of each rank's file: the ranges of State::written, and the items without
// elements, as empty ranges. Items with few elements come first, then the others, each group in the
// order of the items. An item without elements is in the file in which the next item with elements
// begins, or else in the last file. Requires a state for which CheckWritable is OK.
std::vector<std::vector<sharding::Range>> PartsByRank(const State& state);

// The manifest's entries for these parts.
absl::StatusOr<std::vector<manifest::Piece>> Pieces(
    const State& state, const std::vector<std::vector<sharding::Range>>& parts);

// Streams `part`, which is PartsByRank(state)[rank], into `directory`/rank-R.safetensors, hashes
// and syncs the file. After an error there is no file. INVALID_ARGUMENT, before a file is made: an
// error of CheckState, or `part` contains more than `held`.
absl::StatusOr<manifest::FileRecord> WriteShard(const std::string& directory, int64_t rank,
                                                const std::vector<sharding::Range>& part,
                                                const State& state,
                                                files::Disk& disk = files::Disk::Real());

// Returns a copy of the elements that `rank` writes, so that training can change the state while
// the copy is written. The copy has the same items and writers. It is complete on return, in memory
// of the host (pinned, if the state is on a GPU). Elements that the rank writes but does not hold
// are left out; CheckWritable finds them.
State Snapshot(const State& state, int rank);

// Returns the number of bytes of tensors that `rank` writes.
int64_t BytesWritten(const State& state, int rank);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_SHARD_H_
