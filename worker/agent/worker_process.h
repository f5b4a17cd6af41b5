// The process of one worker: a thread reads its output line by line and waits for its end.
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
  // Both are called on the thread of this object: on_lines with the lines in order, and at last
  // on_exit, once.
  struct Events {
    std::function<void(std::vector<std::string> lines)> on_lines;
    std::function<void(process::Exit exit, std::string log_tail)> on_exit;
  };

  // `process` was spawned with Output::kPipe.
  WorkerProcess(std::unique_ptr<process::Process> process, Events events);
  // Kills the process group if it still runs; returns after the last event.
  ~WorkerProcess();

  pid_t pid() const { return process_->pid(); }
  // How many bytes the process itself has written to disks so far; 0 if the kernel does not say.
  uint64_t BytesWritten() const;
  // Signals the whole process group. Has no effect after the end of the process.
  void Signal(int signal) { process_->Signal(signal); }

 private:
  void Watch();
  // Reads once, at most *left bytes, and subtracts what it read. False: there is nothing to read
  // now, or the output is closed.
  bool ReadSome(size_t* left);
  void Emit(std::vector<std::string> lines);

  const std::unique_ptr<process::Process> process_;
  const Events events_;
  // The following members belong to the thread.
  LineSplitter splitter_;
  bool output_closed_ = false;
  std::deque<std::string> tail_;
  size_t tail_bytes_ = 0;
  std::thread thread_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_WORKER_PROCESS_H_
