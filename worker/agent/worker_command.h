// How an agent starts muster-worker, and asks it what it can compute on.
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

// Which of the agent's environment variables its workers get: those that a worker, LibTorch and the
// CUDA libraries read. Others can hold secrets of the agent's user (tokens, passwords) that code in
// a job could read.
//
// `more`: names in addition (--pass-env); "A_*" stands for all that begin with "A_". Pure.
bool IsForWorkers(const std::string& name, const std::vector<std::string>& more);

// INVALID_ARGUMENT: one of them is no name of a variable.
absl::Status CheckVariableNames(const std::vector<std::string>& more);

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

// OK: this muster-worker is built for GPUs. Otherwise the error says why none of its ranks can use
// one: FAILED_PRECONDITION: it is built for the CPU only; another code: it does not tell. Runs
// `PATH --devices`, which prints "cpu" or "cpu cuda", for at most `bound`.
absl::Status CheckTakesGpus(const std::string& worker, absl::Duration bound = absl::Minutes(1));

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_WORKER_COMMAND_H_
