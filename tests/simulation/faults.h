// The kinds of faults in a simulated cluster.
#ifndef MUSTER_TESTS_SIMULATION_FAULTS_H_
#define MUSTER_TESTS_SIMULATION_FAULTS_H_

#include <array>
#include <cstdint>
#include <set>
#include <string>

#include "absl/status/statusor.h"

namespace muster::simulation {

enum class Fault {
  kStreamBreaks,
  kSlowNetwork,
  kWorkerKilled,
  kWorkerFails,
  kWorkerStopped,
  kWorkerHangs,
  kAgentKilled,
  kAgentTerminated,
  kAgentStopped,
  kMachineLost,
  kMachineStopped,
  kMusterdKilled,
  kMusterdAway,
  kMusterdStopped,
  kPartition,
  kOneWayPartition,
  kStoreFails,
  kOldDatabase,
  kDiskFull,
  kDiskGone,
};

struct FaultKind {
  Fault fault;
  const char* name;
  // A description of the fault.
  const char* what;
  // The reason why the fixed seeds leave the fault out, because the product does not handle it yet.
  // Empty: they include the fault.
  const char* not_yet;
};

inline constexpr std::array kFaultKinds = {
    FaultKind{Fault::kStreamBreaks, "stream-breaks",
              "a stream breaks, with what is under way on it", ""},
    FaultKind{Fault::kSlowNetwork, "slow-network", "messages take up to half a second", ""},
    FaultKind{Fault::kWorkerKilled, "worker-killed", "SIGKILL of a worker", ""},
    FaultKind{Fault::kWorkerFails, "worker-fails", "a worker says that it failed", ""},
    FaultKind{Fault::kWorkerStopped, "worker-stopped", "SIGSTOP of a worker, for up to 3 leases",
              ""},
    FaultKind{Fault::kWorkerHangs, "worker-hangs", "a worker beats and does nothing", ""},
    FaultKind{Fault::kAgentKilled, "agent-killed", "SIGKILL of an agent, which is started again",
              ""},
    FaultKind{Fault::kAgentTerminated, "agent-terminated",
              "SIGTERM of an agent, which is started again", ""},
    FaultKind{Fault::kAgentStopped, "agent-stopped", "SIGSTOP of an agent, for up to 3 leases", ""},
    FaultKind{Fault::kMachineLost, "machine-lost",
              "a machine is gone without a word, and comes back", ""},
    FaultKind{Fault::kMachineStopped, "machine-stopped",
              "all processes of a machine stand still, for up to 3 leases", ""},
    FaultKind{Fault::kMusterdKilled, "musterd-killed",
              "SIGKILL of musterd, which is started again within half a lease", ""},
    FaultKind{Fault::kMusterdAway, "musterd-away",
              "SIGKILL of musterd, which is started again after up to 5 leases", ""},
    FaultKind{Fault::kMusterdStopped, "musterd-stopped", "SIGSTOP of musterd, for up to 2 leases",
              ""},
    FaultKind{Fault::kPartition, "partition",
              "nothing passes between a node and musterd, for up to 3 leases", ""},
    FaultKind{Fault::kOneWayPartition, "one-way-partition",
              "nothing passes in one direction, for up to 3 leases", ""},
    FaultKind{Fault::kStoreFails, "store-fails", "no transaction succeeds, for up to 3 leases", ""},
    FaultKind{Fault::kOldDatabase, "old-database", "musterd is started with an older database", ""},
    FaultKind{Fault::kDiskFull, "disk-full", "no checkpoint can be written, for a while", ""},
    FaultKind{Fault::kDiskGone, "disk-gone", "no checkpoint can be read or written, for a while",
              ""},
};

inline const char* Name(Fault fault) { return kFaultKinds[static_cast<size_t>(fault)].name; }

// The faults that the product handles.
std::set<Fault> FaultsThatHold();
std::set<Fault> AllFaults();
// Reads names such as "worker-killed,partition". INVALID_ARGUMENT: an unknown name, with the names
// that are known.
absl::StatusOr<std::set<Fault>> ParseFaults(const std::string& names);

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_FAULTS_H_
