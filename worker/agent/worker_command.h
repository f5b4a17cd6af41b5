// How an agent starts muster-worker.
#ifndef MUSTER_WORKER_AGENT_WORKER_COMMAND_H_
#define MUSTER_WORKER_AGENT_WORKER_COMMAND_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/process/process.h"
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

// NOT_FOUND, PERMISSION_DENIED: there is no program at `path` that can be run.
absl::Status CheckWorkerBinary(const std::string& path);

struct WorkerCommand {
  // Path of muster-worker.
  std::string binary;
  // host:port of musterd.
  std::string coordinator;
  WorkerId worker;
  // With which it computes on the CPU.
  uint32_t threads = 1;
  // The UUID of its GPU; empty: it computes on the CPU, and sees no GPU.
  std::string gpu;
  // By which it shows that this agent started it; empty: the coordinator gave none.
  std::string secret;
  // Variables in addition to those that every worker gets.
  std::map<std::string, std::string> environment;
  // Which of this process's variables it gets, too (IsForWorkers).
  std::vector<std::string> pass_environment;
};

// The options for a child of this process that is killed when this process ends, and whose output
// this process reads.
process::SpawnOptions ToSpawnOptions(WorkerCommand command);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_WORKER_COMMAND_H_
