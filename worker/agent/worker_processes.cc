#include "worker/agent/worker_processes.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <utility>
#include <vector>

#include "common/flags/flags.h"
#include "common/pluginfolders/plugin_folders.h"
#include "common/slots/slots.h"
#include "common/status/status.h"
#include "worker/agent/worker_command.h"

namespace muster::agent {

WorkerProcesses::WorkerProcesses(const AgentOptions* options, Mailbox* mailbox, OnExit on_exit)
    : options_(*options),
      mailbox_(*mailbox),
      on_exit_(std::move(on_exit)),
      hanging_(options->state_directory),
      logs_(options->logs) {}

absl::StatusOr<int64_t> WorkerProcesses::Start(const Launch& launch,
                                               std::map<std::string, std::string> environment) {
  const WorkerId& worker = launch.worker;
  environment.merge(ToEnvironment(options_.tls));
  environment.merge(ToEnvironment(options_.plugins));
  auto spawned = spawner_.Spawn(ToSpawnOptions({.binary = options_.worker,
                                                .coordinator = options_.coordinator,
                                                .worker = worker,
                                                .threads = launch.threads,
                                                .gpu = GpuOf(launch.slot),
                                                .secret = launch.secret,
                                                .environment = std::move(environment),
                                                .pass_environment = options_.pass_environment}));
  if (!spawned.ok()) {
    spdlog::error("{} cannot be started: {}", worker.ToString(), Message(spawned.status()));
    return spawned.status();
  }
  WorkerProcess::Events events;
  events.on_lines = [this, worker](std::vector<std::string> lines) {
    logs_.Push(worker, std::move(lines));
    if (!lines_announced_.exchange(true)) {
      mailbox_.Post([this] { lines_announced_ = false; });
    }
  };
  events.on_exit = [this, worker](process::Exit exit, std::string log_tail) {
    mailbox_.Post([this, worker, exit, log_tail] {
      spdlog::info("{} ended: {}", worker.ToString(), exit.ToString());
      workers_.erase(worker);
      on_exit_(worker, exit, log_tail);
    });
  };
  const int64_t pid = (*spawned)->pid();
  spdlog::info("{} started on slot {}: pid {}", worker.ToString(), launch.slot, pid);
  workers_.emplace(worker, std::make_unique<WorkerProcess>(*std::move(spawned), std::move(events)));
  return pid;
}

void WorkerProcesses::Signal(const WorkerId& worker, int signal) {
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  spdlog::info("{}: {}", worker.ToString(),
               signal == SIGKILL ? "killed: it did not end in time" : "asked to end");
  found->second->Signal(signal);
}

uint64_t WorkerProcesses::BytesWritten() const {
  uint64_t bytes = 1;
  for (const auto& [id, worker] : workers_) bytes += worker->BytesWritten();
  return bytes;
}

void WorkerProcesses::End() {
  for (auto& [id, worker] : workers_) {
    if (hanging_.Contains(id)) (void)worker.release();
  }
  workers_.clear();
}

std::string WorkerProcesses::GpuOf(uint32_t slot) const {
  for (const Gpu& gpu : options_.gpus) {
    if (slot == kFirstGpuSlot + gpu.index) return gpu.uuid;
  }
  return "";
}

}  // namespace muster::agent
