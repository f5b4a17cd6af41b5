#include "worker/agent/worker_command.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/process/stop_signals.h"
#include "common/secret/secret.h"
#include "common/secret/worker_variable.h"
#include "common/version/version.h"
#include "worker/agent/worker_environment.h"

namespace muster::agent {

absl::Status CheckWorkerBinary(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrCat("no worker binary at '", path, "' (", strerror(errno),
                                            "); --worker names it"));
  }
  if (!S_ISREG(info.st_mode) || access(path.c_str(), X_OK) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("'", path, "' is not a program that can be run"));
  }
  return absl::OkStatus();
}

process::SpawnOptions ToSpawnOptions(WorkerCommand command) {
  const WorkerId& worker = command.worker;
  command.environment["OMP_NUM_THREADS"] = absl::StrCat(command.threads);
  command.environment["CUDA_VISIBLE_DEVICES"] = command.gpu;
  command.environment[kAgentVersionVariable] = Version();
  if (!command.secret.empty()) {
    command.environment[secret::kWorkerVariable] = secret::ToHex(command.secret);
  }
  std::vector<int> blocked = process::PreemptionSignals();
  blocked.push_back(SIGINT);
  return {
      .argv = {command.binary, "--coordinator", command.coordinator, "--job", worker.job,
               "--generation", absl::StrCat(worker.generation), "--rank", absl::StrCat(worker.rank),
               "--incarnation", worker.incarnation, "--agent-pid", absl::StrCat(getpid())},
      .inherits = [more = std::move(command.pass_environment)](
                      const std::string& name) { return IsForWorkers(name, more); },
      .environment = std::move(command.environment),
      .grouping = process::Grouping::kOwnGroup,
      .output = process::Output::kPipe,
      .parent_death_signal = SIGKILL,
      // The worker decides whose signals it obeys, once its libraries are loaded (worker/main.cc).
      .blocked = std::move(blocked),
  };
}

}  // namespace muster::agent
