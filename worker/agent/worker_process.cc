#include "worker/agent/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace muster::agent {
namespace {

// The tail is bounded by lines and by bytes: 40 lines of 16 KiB would be too long for a Hello with
// many exits.
constexpr size_t kTailLines = 40;
constexpr size_t kTailBytes = 64 << 10;
constexpr size_t kReadBytes = 64 << 10;

}  // namespace

WorkerProcess::WorkerProcess(std::unique_ptr<process::Process> process, Events events)
    : process_(std::move(process)), events_(std::move(events)), thread_([this] { Watch(); }) {}

WorkerProcess::~WorkerProcess() {
  process_->Signal(SIGKILL);
  thread_.join();
}

uint64_t WorkerProcess::BytesWritten() const {
  std::ifstream io(absl::StrCat("/proc/", pid(), "/io"));
  std::string name;
  uint64_t bytes = 0;
  while (io >> name >> bytes) {
    if (name == "write_bytes:") return bytes;
  }
  return 0;
}

void WorkerProcess::Watch() {
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
  // What the process wrote before its end is in the pipe, which holds no more than this. A
  // descendant that left the group may keep the pipe open, and even write to it: nothing waits for
  // that.
  size_t left = static_cast<size_t>(std::max(fcntl(process_->output(), F_GETPIPE_SZ), 0));
  while (left > 0 && ReadSome(&left)) {
  }
  Emit(splitter_.Finish());
  events_.on_exit(*exit, absl::StrJoin(tail_, "\n"));
}

bool WorkerProcess::ReadSome(size_t* left) {
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

void WorkerProcess::Emit(std::vector<std::string> lines) {
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

}  // namespace muster::agent
