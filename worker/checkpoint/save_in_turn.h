// A checkpoint as all ranks would write it, one rank after another, without a communicator; for
// tests.
#ifndef MUSTER_WORKER_CHECKPOINT_SAVE_IN_TURN_H_
#define MUSTER_WORKER_CHECKPOINT_SAVE_IN_TURN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/manifest/manifest.h"
#include "common/status/status.h"
#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/shard.h"
#include "worker/checkpoint/state.h"

namespace muster::checkpoint {

// Commits `directory`/step-N-g1 of the model "toy". `states`: by rank.
inline absl::Status SaveInTurn(const std::string& directory, int64_t step,
                               const std::vector<State>& states,
                               files::Disk& disk = files::Disk::Real()) {
  const std::string temporary = files::JoinPath(directory, TemporaryName(step, 1));
  RETURN_IF_ERROR(files::CreateDirectories(temporary));
  const int64_t ranks = static_cast<int64_t>(states.size());
  manifest::Manifest manifest = {.job = "j",
                                 .step = step,
                                 .generation = 1,
                                 .world_size = ranks,
                                 .strategy = "ddp",
                                 .model_kind = "toy"};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const State& state = states[rank];
    RETURN_IF_ERROR(CheckWritable(state, rank, ranks));
    const auto parts = PartsByRank(state);
    ASSIGN_OR_RETURN(manifest.pieces, Pieces(state, parts));
    ASSIGN_OR_RETURN(manifest::FileRecord record,
                     WriteShard(temporary, rank, parts[rank], state, disk));
    manifest.files.push_back(record);
  }
  return Commit(temporary, files::JoinPath(directory, FinalName(step, 1)), manifest, disk);
}

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_SAVE_IN_TURN_H_
