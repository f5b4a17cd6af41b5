// One worker's process: a thread reads its output line by line and sees its end.
#ifndef MUSTER_WORKER_AGENT_WORKER_PROCESS_H_
#define MUSTER_WORKER_AGENT_WORKER_PROCESS_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/process/process.h"
#include "worker/agent/line_splitter.h"

namespace muster::agent {

class WorkerProcess {
 public:
  // Both are called on the thread of this object: lines in order, then once the end, after which
  // neither is called again.
  struct Events {
    std::function<void(std::vector<std::string> lines)> on_lines;
    std::function<void(process::Exit exit, std::string log_tail)> on_exit;
  };

  // `process` was spawned with Output::kPipe.
  WorkerProcess(std::unique_ptr<process::Process> process, Events events);
  // Kills the group where it still runs; returns after the last event.
  ~WorkerProcess();

  pid_t pid() const { return process_->pid(); }
  // To disks, so far, by the process itself; 0 where the kernel does not say.
  uint64_t BytesWritten() const;
  // To the whole group. No effect after its end.
  void Signal(int signal) { process_->Signal(signal); }

 private:
  void Watch();
  // One read; false: nothing is there now, or nothing will ever be.
  bool ReadSome(size_t* left);
  void Emit(std::vector<std::string> lines);

  const std::unique_ptr<process::Process> process_;
  const Events events_;
  // The rest belongs to the thread.
  LineSplitter splitter_;
  bool output_closed_ = false;
  std::deque<std::string> tail_;
  size_t tail_bytes_ = 0;
  std::thread thread_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_WORKER_PROCESS_H_
