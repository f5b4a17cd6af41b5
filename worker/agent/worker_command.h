// The command that starts muster-worker, and the query of the devices that it can compute on.
#ifndef MUSTER_WORKER_AGENT_WORKER_COMMAND_H_
#define MUSTER_WORKER_AGENT_WORKER_COMMAND_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/process/process.h"
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

// Tells which of the agent's environment variables its workers get: the variables that a worker,
// LibTorch and the CUDA libraries read. Others can hold secrets of the agent's user (tokens,
// passwords) that code in a job could read.
//
// `more`: additional names (--pass-env); "A_*" stands for all names that begin with "A_". Pure.
bool IsForWorkers(const std::string& name, const std::vector<std::string>& more);

// INVALID_ARGUMENT: an entry is no name of a variable.
absl::Status CheckVariableNames(const std::vector<std::string>& more);

// NOT_FOUND, PERMISSION_DENIED: there is no program at `path` that can be run.
absl::Status CheckWorkerBinary(const std::string& path);

struct WorkerCommand {
  // Path of muster-worker.
  std::string binary;
  // host:port of musterd.
  std::string coordinator;
  WorkerId worker;
  // The number of threads with which the worker computes on the CPU.
  uint32_t threads = 1;
  // The UUID of the worker's GPU; empty: the worker computes on the CPU, and sees no GPU.
  std::string gpu;
  // The secret by which the worker shows that this agent started it; empty: the coordinator gave
  // none.
  std::string secret;
  // Variables in addition to those that every worker gets.
  std::map<std::string, std::string> environment;
  // The names of this process's variables that the worker gets, too (IsForWorkers).
  std::vector<std::string> pass_environment;
};

// Returns the options for a child of this process. The child is killed when this process ends, and
// this process reads its output.
process::SpawnOptions ToSpawnOptions(WorkerCommand command);

// Checks that this muster-worker is built for GPUs. FAILED_PRECONDITION: it is built for the CPU
// only. Other errors: it does not tell. Runs `PATH --devices`, which prints "cpu" or "cpu cuda",
// for at most `bound`.
absl::Status CheckTakesGpus(const std::string& worker, absl::Duration bound = absl::Minutes(1));

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_WORKER_COMMAND_H_
