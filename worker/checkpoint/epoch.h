// The epoch file of a job's checkpoint folder says which generation was the last to begin there. It
// keeps a generation that others take for gone, or that an older coordinator started, from changing
// anything: who finds a newer one stops.
//
// Begun by rank 0, and read again before each act that others cannot take back: giving a checkpoint
// its name, removing one, setting one aside.
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
  // What tells the job from another of the same id, and rank 0's process from another of the same
  // generation.
  std::string instance;
  std::string incarnation;
  friend bool operator==(const Epoch&, const Epoch&) = default;
};

// Makes `mine` the epoch of the folder, durably. ABORTED with NewerGeneration() where the file
// names, or a checkpoint in the folder is of, a newer generation, or another process of the same
// one.
absl::Status BeginEpoch(const std::string& folder, const Epoch& mine,
                        files::Disk& disk = files::Disk::Real());

// OK where `mine` is the epoch still. ABORTED as above; any other error: the file could not be
// read, so nothing is known.
absl::Status CheckEpoch(const std::string& folder, const Epoch& mine);

// The generation that was found, of an error of the two; else nothing.
std::optional<int64_t> NewerGeneration(const absl::Status& status);

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_EPOCH_H_
