// The start of a generation: the use of the job's folder by rank 0, as in
// worker/train/save/checkpoints.h of the product.
#ifndef MUSTER_TESTS_SIMULATION_START_H_
#define MUSTER_TESTS_SIMULATION_START_H_

#include <optional>
#include <string>
#include <vector>

#include "coordinator/cluster/event.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/life.h"
#include "tests/simulation/shared_disk.h"

namespace muster::simulation {

struct Start {
  // The generation does not start; the other fields have no meaning.
  std::optional<jobs::ReportedFailure> failure;
  // A recorded checkpoint that is missing.
  std::string missing;
  // The checkpoint from which the generation starts. Empty: from scratch.
  std::string path;
  // Unknown checkpoints.
  cluster::CheckpointsFound found;
};

// Begins the epoch of the folder, and looks for the newest checkpoint there. `recorded`: the
// checkpoints that count, newest first. `known`: the checkpoints that do not count.
Start FindStart(SharedDisk* disk, const cluster::WorkerId& leader,
                const std::vector<jobs::Checkpoint>& recorded,
                const std::vector<jobs::Checkpoint>& known);

// Returns the error of a process after which another process began in the folder. Nothing: the
// process was the last to begin.
std::optional<jobs::ReportedFailure> StaleEpoch(const SharedDisk& disk,
                                                const cluster::WorkerId& leader);

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_START_H_
