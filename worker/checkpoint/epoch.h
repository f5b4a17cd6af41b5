// The epoch file of a job's checkpoint folder names the generation that was the last to begin
// there. The file prevents changes by generations that count as gone, or that a coordinator with an
// older database started. A process that finds a newer generation in the file stops.
//
// Rank 0 begins the epoch, and reads the file again before each final action: giving a checkpoint
// its final name, removing a checkpoint, renaming a damaged checkpoint.
#ifndef MUSTER_WORKER_CHECKPOINT_EPOCH_H_
#define MUSTER_WORKER_CHECKPOINT_EPOCH_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/files/disk.h"

namespace muster::checkpoint {

inline constexpr char kEpochFile[] = ".muster-epoch";

struct Epoch {
  int64_t generation = 0;
  // `instance` distinguishes the job from another job with the same id; `incarnation` distinguishes
  // rank 0's process from another process of the same generation.
  std::string instance;
  std::string incarnation;
  friend bool operator==(const Epoch&, const Epoch&) = default;
};

// Makes `mine` the epoch of the folder, durably. ABORTED with NewerGeneration() if the file or a
// checkpoint in the folder belongs to a newer generation, or to another process of the same
// generation.
absl::Status BeginEpoch(const std::string& folder, const Epoch& mine,
                        files::Disk& disk = files::Disk::Real());

// OK if `mine` is still the epoch. ABORTED: as BeginEpoch. Other errors: the file could not be
// read, so nothing is known.
absl::Status CheckEpoch(const std::string& folder, const Epoch& mine);

// The generation that was found, if the status is an ABORTED of these functions; otherwise absent.
std::optional<int64_t> NewerGeneration(const absl::Status& status);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_EPOCH_H_
