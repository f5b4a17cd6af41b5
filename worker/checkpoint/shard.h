// One rank's file of a checkpoint.
#ifndef MUSTER_WORKER_CHECKPOINT_SHARD_H_
#define MUSTER_WORKER_CHECKPOINT_SHARD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/files/disk.h"
#include "common/manifest/manifest.h"
#include "worker/checkpoint/cut.h"
#include "worker/checkpoint/state.h"

namespace muster::checkpoint {

// "rank-3.safetensors"
std::string ShardName(int64_t rank);

// "F32": a state tensor's type as the manifest names it.
std::string DTypeName(const at::Tensor& tensor);

// INVALID_ARGUMENT unless every tensor is as state.h says and no name is there twice.
absl::Status CheckState(const State& state);

// The cuts of the whole state among `parts` ranks, and how the manifest tells of them.
std::vector<std::vector<Cut>> CutState(const State& state, int64_t parts);
std::vector<manifest::Piece> Pieces(const State& state, const std::vector<std::vector<Cut>>& cuts);

// Streams `cuts` of the state into `directory`/rank-R.safetensors, hashing, and syncs it. After an
// error the file is gone.
absl::StatusOr<manifest::FileRecord> WriteShard(const std::string& directory, int64_t rank,
                                                const std::vector<Cut>& cuts, const State& state,
                                                files::Disk& disk = files::Disk::Real());

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_SHARD_H_
