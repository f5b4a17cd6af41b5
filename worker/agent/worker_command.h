// How an agent starts muster-worker.
#ifndef MUSTER_WORKER_AGENT_WORKER_COMMAND_H_
#define MUSTER_WORKER_AGENT_WORKER_COMMAND_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "common/process/process.h"
#include "worker/agent/worker_record.h"

namespace muster::agent {

// NOT_FOUND, PERMISSION_DENIED: there is no program at `path` that can be run.
absl::Status CheckWorkerBinary(const std::string& path);

struct WorkerCommand {
  // Path of muster-worker.
  std::string binary;
  // host:port of musterd.
  std::string coordinator;
  WorkerId worker;
  // On top of what every worker gets.
  std::map<std::string, std::string> environment;
};

// For a child of this process, which is killed when this one ends, and whose output is read.
process::SpawnOptions ToSpawnOptions(WorkerCommand command);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_WORKER_COMMAND_H_
