// The processes of this agent's workers: starts and signals them, queues what they print, and sees
// their end.
#ifndef MUSTER_WORKER_AGENT_WORKER_PROCESSES_H_
#define MUSTER_WORKER_AGENT_WORKER_PROCESSES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/process/process.h"
#include "worker/agent/agent.h"
#include "worker/agent/core/events.h"
#include "worker/agent/core/worker_record.h"
#include "worker/agent/hanging_processes.h"
#include "worker/agent/log_queue.h"
#include "worker/agent/mailbox.h"

namespace muster::agent {

// Not thread-safe: one thread makes the calls and carries out the mailbox's tasks.
class WorkerProcesses {
 public:
  using OnExit = std::function<void(const WorkerId& worker, const process::Exit& exit,
                                    const std::string& log_tail)>;

  // `options` and `mailbox` outlive this object. `on_exit` is called in a task of the mailbox.
  WorkerProcesses(const AgentOptions* options, Mailbox* mailbox, OnExit on_exit);
  ~WorkerProcesses();

  // Returns the process's id. `environment`: variables in addition to those that every worker of
  // this agent gets.
  absl::StatusOr<int64_t> Start(const Launch& launch,
                                std::map<std::string, std::string> environment);
  void Signal(const WorkerId& worker, int signal);
  // How much all workers have written to disks, plus 1, because 0 means that nothing is known
  // (Drain::bytes).
  uint64_t BytesWritten() const;
  // Kills those that still run and waits for their end, except for those that hang in the kernel.
  void End();

  // Thread-safe.
  LogQueue* logs() { return &logs_; }
  // Also processes of former agents.
  HangingProcesses& hanging() { return hanging_; }

 private:
  class Running;

  // The UUID of a slot's GPU; empty for a slot of the CPU.
  std::string GpuOf(uint32_t slot) const;

  const AgentOptions& options_;
  Mailbox& mailbox_;
  const OnExit on_exit_;
  HangingProcesses hanging_;
  LogQueue logs_;
  // A task that makes the mailbox's thread look at logs_ is in the mailbox. Changed by any thread.
  std::atomic<bool> lines_announced_ = false;
  // It outlives the workers, which are killed when its thread ends.
  process::Spawner spawner_;
  std::map<WorkerId, std::unique_ptr<Running>> workers_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_WORKER_PROCESSES_H_
