// A whole cluster in one thread and simulated time: the real cores of coordinator and agents,
// model workers that train, clients, and a network, machines and disks that fail.
// Everything follows from the seed.
#ifndef MUSTER_TESTS_SIMULATION_CLUSTER_SIMULATION_H_
#define MUSTER_TESTS_SIMULATION_CLUSTER_SIMULATION_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "coordinator/cluster/cluster.h"
#include "tests/simulation/faults.h"
#include "worker/agent/core.h"

namespace muster::simulation {

struct SimulationOptions {
  uint64_t seed = 0;
  // Of these each run takes some.
  std::set<Fault> faults;
  // Agents and workers are those of the program before this one. They outlive what musterd grants,
  // so that generations overlap: then it is only judged whether what they still say is refused.
  bool old_nodes = false;
  // Of each node. With more than the jobs need, what a node loses starts elsewhere at once.
  uint32_t slots = 2;
  // How often the coordinator looks at the clock; 20: as coordinator/service/engine.cc does, which
  // hides small mistakes.
  int ticks_per_lease = 20;
  // Mistakes that are to be found.
  cluster::PlantedFault planted_in_cluster = cluster::PlantedFault::kNone;
  // What happened, in lines; may be null.
  std::string* story = nullptr;
};

struct SimulationResult {
  // The first thing that must not be; empty: nothing.
  std::string wrong;
  uint64_t events = 0;
  // How often each kind happened.
  std::map<Fault, uint64_t> happened;
};

SimulationResult Simulate(const SimulationOptions& options);

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_CLUSTER_SIMULATION_H_
