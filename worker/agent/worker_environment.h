// Which of the agent's environment variables its workers get: those that a worker, LibTorch and the
// CUDA libraries read. Others can hold secrets of the agent's user (tokens, passwords) that code in
// a job could read.
#ifndef MUSTER_WORKER_AGENT_WORKER_ENVIRONMENT_H_
#define MUSTER_WORKER_AGENT_WORKER_ENVIRONMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace muster::agent {

// `more`: names in addition (--pass-env); "A_*" stands for all that begin with "A_". Pure.
bool IsForWorkers(const std::string& name, const std::vector<std::string>& more);

// INVALID_ARGUMENT: one of them is no name of a variable.
absl::Status CheckVariableNames(const std::vector<std::string>& more);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_WORKER_ENVIRONMENT_H_
