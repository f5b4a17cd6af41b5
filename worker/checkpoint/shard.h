// Who writes what of a state, and one rank's file of a checkpoint.
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
#include "worker/checkpoint/state.h"
#include "worker/layout/placement.h"

namespace muster::checkpoint {

// "rank-3.safetensors"
std::string ShardName(int64_t rank);

// "F32": the type of an item that CheckState lets through, as the manifest names it.
std::string DTypeName(at::ScalarType type);

// CheckState, and: INVALID_ARGUMENT unless `world_size` ranks write each element of the state once,
// an item at most once each, and `rank` holds what it writes. Naming who and what.
absl::Status CheckWritable(const State& state, int64_t rank, int64_t world_size);

// The entries of each rank's file, in the order of the items: what State::written says, and the
// items without elements, as empty ranges. Such an item is in the file in which the next one that
// has elements begins, else in the last. Only of a state that is CheckWritable.
std::vector<std::vector<layout::Range>> Parts(const State& state);

// How the manifest tells of them.
std::vector<manifest::Piece> Pieces(const State& state,
                                    const std::vector<std::vector<layout::Range>>& parts);

// Streams `part`, which is Parts(state)[rank], into `directory`/rank-R.safetensors, hashing, and
// syncs it. After an error the file is gone. INVALID_ARGUMENT, before there is one: CheckState's,
// or `part` is more than `held`.
absl::StatusOr<manifest::FileRecord> WriteShard(const std::string& directory, int64_t rank,
                                                const std::vector<layout::Range>& part,
                                                const State& state,
                                                files::Disk& disk = files::Disk::Real());

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_SHARD_H_
