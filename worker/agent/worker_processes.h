// The processes of this agent's workers: starts and signals them, queues their output, and sees
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

  // Starts a process and returns its id. `environment`: variables in addition to those that every
  // worker of this agent gets.
  absl::StatusOr<int64_t> Start(const Launch& launch,
                                std::map<std::string, std::string> environment);
  void Signal(const WorkerId& worker, int signal);
  // The number of bytes that all workers have written to disks, plus 1, because 0 means that
  // nothing is known (Drain::bytes).
  uint64_t BytesWritten() const;
  // Kills the running workers and waits for their end, except for those that hang in the kernel.
  void End();

  // Thread-safe.
  LogQueue* logs() { return &logs_; }
  // The hanging processes, including those of former agents.
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
  // True while the mailbox contains a task that looks at logs_. Changed by any thread.
  std::atomic<bool> lines_announced_ = false;
  // The spawner outlives the workers, because they are killed when its thread ends.
  process::Spawner spawner_;
  std::map<WorkerId, std::unique_ptr<Running>> workers_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_WORKER_PROCESSES_H_
