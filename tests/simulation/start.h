// Where a generation starts: how its rank 0 uses the job's folder, as
// worker/train/save/checkpoints.h does in the product.
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
  // A recorded checkpoint that is not there.
  std::string missing;
  // Empty: from scratch.
  std::string path;
  // Unknown checkpoints.
  cluster::CheckpointsFound found;
};

// Begins the epoch of the folder, and looks for the newest checkpoint there. `recorded`: those that
// count, newest first; `known`: those that do not.
Start FindStart(SharedDisk* disk, const cluster::WorkerId& leader,
                const std::vector<jobs::Checkpoint>& recorded,
                const std::vector<jobs::Checkpoint>& known);

// The error of a process that is not the last one that began there; nothing: it is the last one.
std::optional<jobs::ReportedFailure> StaleEpoch(const SharedDisk& disk,
                                                const cluster::WorkerId& leader);

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_START_H_
