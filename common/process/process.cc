#include "common/process/process.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/steady/now.h"

namespace muster::process {
namespace {

// Returns true when the process of `pidfd` has ended.
bool AwaitEnd(int pidfd, absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  while (true) {
    const absl::Duration left = deadline - SteadyNow();
    int milliseconds = -1;
    if (timeout != absl::InfiniteDuration()) {
      // Rounds up: a wait that ends just before the deadline would become a busy loop.
      milliseconds = static_cast<int>(std::clamp<int64_t>(
          absl::ToInt64Milliseconds(left + absl::Microseconds(999)), 0, INT_MAX));
    }
    pollfd poller = {.fd = pidfd, .events = POLLIN, .revents = 0};
    const int ready = poll(&poller, 1, milliseconds);
    if (ready > 0) return true;
    if (ready == 0 && left <= absl::ZeroDuration()) return false;
  }
}

}  // namespace

std::string Exit::ToString() const {
  if (signal == 0) return absl::StrCat("exit code ", code);
  return absl::StrCat("killed by signal ", signal, " (", strsignal(signal), ")");
}

Process::Process(pid_t pid, Fd pidfd, Fd output)
    : pid_(pid), pidfd_(std::move(pidfd)), output_(std::move(output)) {}

Process::~Process() {
  {
    absl::MutexLock lock(&mutex_);
    if (exit_.has_value()) return;
  }
  Signal(SIGKILL);
  Wait(absl::InfiniteDuration());
}

void Process::Signal(int signal) {
  absl::MutexLock lock(&mutex_);
  // The id, and the id of the group, cannot belong to another process before the process is reaped.
  if (!exit_.has_value()) kill(-pid_, signal);
}

std::optional<Exit> Process::Wait(absl::Duration timeout) {
  {
    absl::MutexLock lock(&mutex_);
    if (exit_.has_value()) return exit_;
  }
  if (!AwaitEnd(pidfd_.get(), timeout)) return std::nullopt;

  absl::MutexLock lock(&mutex_);
  if (exit_.has_value()) return exit_;
  kill(-pid_, SIGKILL);
  siginfo_t info = {};
  while (waitid(P_PID, pid_, &info, WEXITED) != 0 && errno == EINTR) {
  }
  exit_ =
      info.si_code == CLD_EXITED ? Exit{.code = info.si_status} : Exit{.signal = info.si_status};
  return exit_;
}

Exit Process::Stop(absl::Duration grace) {
  Signal(SIGTERM);
  if (std::optional<Exit> exit = Wait(grace)) return *exit;
  Signal(SIGKILL);
  return *Wait(absl::InfiniteDuration());
}

size_t RaiseOpenFiles() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : before;
}

}  // namespace muster::process
