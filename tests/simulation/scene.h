// The parts of one simulated cluster, and their references to each other.
#ifndef MUSTER_TESTS_SIMULATION_SCENE_H_
#define MUSTER_TESTS_SIMULATION_SCENE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/lease/lease.h"
#include "coordinator/cluster/cluster.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/coordinator_process.h"
#include "tests/simulation/network.h"
#include "tests/simulation/shared_disk.h"
#include "tests/simulation/timeline.h"
#include "worker/agent/core/worker_record.h"

namespace muster::simulation {

class AgentProcess;
class WorkerProcess;
class TrainingSession;

// The settings that a job file would have.
struct JobSettings {
  uint32_t world_size = 1;
  int64_t total_steps = 10;
  int64_t save_every = 5;
  absl::Duration step_time;
};

struct Scene {
  Timeline& timeline;
  Network& network;
  SharedDisk& disk;
  Checker& checker;
  CoordinatorProcess& coordinator;
  membership::Timing timing;
  // True: agents and workers take their leases for longer than they are.
  bool slow_clocks = false;
  // The times of a lease as an agent or a worker understands them.
  LeaseTerms TermsOf(const membership::Timing& granted) const {
    return {.lease = granted.lease * (slow_clocks ? 10 : 1),
            .margin = granted.Margin(),
            .autonomy = granted.autonomy};
  }
  std::map<std::string, JobSettings> jobs;
  // The process that reads each stream.
  std::map<StreamId, AgentProcess*> agent_streams;
  std::map<StreamId, WorkerProcess*> worker_streams;
  // The reports that workers left on the disks of their nodes.
  std::map<std::string, std::map<agent::WorkerId, std::vector<cluster::Report>>> spools;
  // The number of times that the database was replaced by an older one.
  uint64_t databases;
  // The sessions by job, generation and database.
  std::map<std::tuple<std::string, uint64_t, uint64_t>, std::unique_ptr<TrainingSession>> sessions;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_SCENE_H_
