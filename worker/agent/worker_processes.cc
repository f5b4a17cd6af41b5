#include "worker/agent/worker_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/flags/flags.h"
#include "common/pluginfolders/plugin_folders.h"
#include "common/slots/slots.h"
#include "common/status/status.h"
#include "worker/agent/worker_command.h"

namespace muster::agent {
namespace {

// The limits on the tail, in lines and in bytes: 40 lines of 16 KiB would be too long for a Hello
// with many exits.
constexpr size_t kTailLines = 40;
constexpr size_t kTailBytes = 64 << 10;
constexpr size_t kReadBytes = 64 << 10;

}  // namespace

// The process of one worker: a thread reads its output line by line and waits for its end.
class WorkerProcesses::Running {
 public:
  // The functions that the thread of this object calls: on_lines with the lines in order, and at
  // last on_exit, once.
  struct Events {
    std::function<void(std::vector<std::string> lines)> on_lines;
    std::function<void(process::Exit exit, std::string log_tail)> on_exit;
  };

  // `process` was spawned with Output::kPipe.
  Running(std::unique_ptr<process::Process> process, Events events)
      : process_(std::move(process)), events_(std::move(events)), thread_([this] { Watch(); }) {}
  // Kills the process group if it still runs; returns after the last event.
  ~Running() {
    process_->Signal(SIGKILL);
    thread_.join();
  }

  // The number of bytes that the process itself has written to disks so far; 0 if the kernel does
  // not say.
  uint64_t BytesWritten() const {
    std::ifstream io(absl::StrCat("/proc/", process_->pid(), "/io"));
    std::string name;
    uint64_t bytes = 0;
    while (io >> name >> bytes) {
      if (name == "write_bytes:") return bytes;
    }
    return 0;
  }
  // Signals the whole process group. Has no effect after the end of the process.
  void Signal(int signal) { process_->Signal(signal); }

 private:
  void Watch() {
    size_t no_limit = SIZE_MAX;
    std::optional<process::Exit> exit;
    while (!exit.has_value()) {
      pollfd waits[] = {
          {.fd = process_->pidfd(), .events = POLLIN, .revents = 0},
          {.fd = output_closed_ ? -1 : process_->output(), .events = POLLIN, .revents = 0},
      };
      if (poll(waits, 2, -1) < 0) continue;
      if (waits[1].revents != 0) ReadSome(&no_limit);
      if (waits[0].revents != 0) exit = process_->Wait(absl::InfiniteDuration());
    }
    // The pipe contains all output that the process wrote before its end, and no more than this
    // size. A descendant that left the group may keep the pipe open, and even write to it. Nothing
    // waits for such output.
    size_t left = static_cast<size_t>(std::max(fcntl(process_->output(), F_GETPIPE_SZ), 0));
    while (left > 0 && ReadSome(&left)) {
    }
    Emit(splitter_.Finish());
    events_.on_exit(*exit, absl::StrJoin(tail_, "\n"));
  }

  // Reads once, at most *left bytes, and subtracts the number of read bytes. False: there is
  // nothing to read now, or the output is closed.
  bool ReadSome(size_t* left) {
    char buffer[kReadBytes];
    const ssize_t count = read(process_->output(), buffer, std::min(sizeof(buffer), *left));
    if (count < 0) return errno == EINTR;
    if (count == 0) {
      output_closed_ = true;
      return false;
    }
    *left -= count;
    Emit(splitter_.Feed(buffer, count));
    return true;
  }

  void Emit(std::vector<std::string> lines) {
    if (lines.empty()) return;
    for (const std::string& line : lines) {
      tail_.push_back(line);
      tail_bytes_ += line.size();
      while (tail_.size() > kTailLines || (tail_bytes_ > kTailBytes && tail_.size() > 1)) {
        tail_bytes_ -= tail_.front().size();
        tail_.pop_front();
      }
    }
    events_.on_lines(std::move(lines));
  }

  const std::unique_ptr<process::Process> process_;
  const Events events_;
  // The following members belong to the thread.
  LineSplitter splitter_;
  bool output_closed_ = false;
  std::deque<std::string> tail_;
  size_t tail_bytes_ = 0;
  std::thread thread_;
};

WorkerProcesses::WorkerProcesses(const AgentOptions* options, Mailbox* mailbox, OnExit on_exit)
    : options_(*options),
      mailbox_(*mailbox),
      on_exit_(std::move(on_exit)),
      hanging_(options->state_directory),
      logs_(options->logs) {}

WorkerProcesses::~WorkerProcesses() = default;

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
  Running::Events events;
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
  workers_.emplace(worker, std::make_unique<Running>(*std::move(spawned), std::move(events)));
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
