// A whole cluster in one thread and simulated time. It has the real cores of coordinator and
// agents, model workers that train, and clients. Network, machines and disks fail. Everything
// follows from the seed.
#ifndef MUSTER_TESTS_SIMULATION_CLUSTER_SIMULATION_H_
#define MUSTER_TESTS_SIMULATION_CLUSTER_SIMULATION_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "coordinator/cluster/cluster.h"
#include "tests/simulation/faults.h"
#include "worker/agent/core/core.h"

namespace muster::simulation {

struct SimulationOptions {
  uint64_t seed = 0;
  // The faults of which each run uses some.
  std::set<Fault> faults;
  // True: the clocks of nodes are slow. Agents and workers run longer than their leases, so
  // generations overlap. Then the checker only checks that messages of stale processes are refused.
  bool slow_clocks = false;
  // Slots of each node. If there are more than the jobs need, processes that a node loses start on
  // another node at once.
  uint32_t slots = 2;
  // The coordinator's readings of the clock per lease. 20, as in coordinator/service/engine.cc,
  // hides small mistakes.
  int ticks_per_lease = 20;
  // Planted faults that the checker must find.
  cluster::PlantedFault planted_in_cluster = cluster::PlantedFault::kNone;
  // Lines that describe what happened; may be null.
  std::string* story = nullptr;
};

struct SimulationResult {
  // The first violation; empty: there was none.
  std::string wrong;
  uint64_t events = 0;
  // The number of times that each kind of fault happened.
  std::map<Fault, uint64_t> happened;
};

SimulationResult Simulate(const SimulationOptions& options);

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_CLUSTER_SIMULATION_H_
