// Child processes: each starts in its own process group (or session), ends as a group, and is
// always reaped.
//
// A Spawner lives as long as its children should. Spawn returns a Process, whose destructor ends a
// running child. A child has only stdin (/dev/null), stdout and stderr: every other descriptor of
// its parent is closed. Its signal mask and dispositions are the default ones, except for
// SpawnOptions::blocked, and for a SIGHUP that this process ignores (nohup).
#ifndef MUSTER_COMMON_PROCESS_PROCESS_H_
#define MUSTER_COMMON_PROCESS_PROCESS_H_

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/process/fd.h"

namespace muster::process {

// How a process ended.
struct Exit {
  // The exit code; 0 if a signal ended the process.
  int code = 0;
  // The signal that ended the process; 0 if the process exited.
  int signal = 0;

  bool operator==(const Exit&) const = default;
  // "exit code 1" or "killed by signal 9 (Killed)".
  std::string ToString() const;
};

enum class Grouping {
  // The child's own process group, which signals to the parent's terminal do not reach.
  kOwnGroup,
  // The child's own session, which no event of the parent's session or terminal reaches.
  kOwnSession,
};

enum class Output {
  // stdout and stderr of the parent.
  kInherit,
  // Both into one pipe: Process::output().
  kPipe,
};

struct SpawnOptions {
  // The arguments. argv[0] is the path of the binary (no search in PATH).
  std::vector<std::string> argv;
  // Chooses by name the variables of this process that the child gets. Null: all.
  std::function<bool(const std::string& name)> inherits;
  // Variables that the child gets besides, or in place of those of this process.
  std::map<std::string, std::string> environment;
  Grouping grouping = Grouping::kOwnGroup;
  Output output = Output::kInherit;
  // The signal to the child (not to its own children) when this process, or the Spawner, ends. 0:
  // none.
  int parent_death_signal = 0;
  // Signals that are blocked when the program begins: they wait until the program can handle them.
  std::vector<int> blocked = {};
};

// One child and its process group. Thread-safe.
class Process {
 public:
  // Kills the group if the process still runs, and reaps the process.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // The read end of the pipe, non-blocking; -1 with Output::kInherit. This object owns it.
  int output() const { return output_.get(); }
  // A descriptor that becomes readable (poll) when the process has ended. This object owns it.
  int pidfd() const { return pidfd_.get(); }

  // Sends a signal to the whole group. Has no effect after a Wait that returned the end.
  void Signal(int signal);

  // Waits at most `timeout` (absl::InfiniteDuration(): no limit) and returns how the process ended.
  // nullopt: the process still runs. Kills the rest of its group before the process id is released,
  // so that no other process is killed by mistake. Later calls return the same.
  std::optional<Exit> Wait(absl::Duration timeout);

  // Sends SIGTERM to the group, SIGKILL after `grace`, and waits for the end.
  Exit Stop(absl::Duration grace);

 private:
  friend class Spawner;
  Process(pid_t pid, Fd pidfd, Fd output);

  const pid_t pid_;
  const Fd pidfd_;
  const Fd output_;

  absl::Mutex mutex_;
  std::optional<Exit> exit_ ABSL_GUARDED_BY(mutex_);
};

// Forks all children on one separate thread: the kernel sends a parent death signal when the
// forking thread ends, and not when the process ends. Thread-safe.
class Spawner {
 public:
  Spawner();
  // Ends the thread: children with a parent death signal get their signal.
  ~Spawner();
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  // Starts a process; returns when the new program runs (exec succeeded). NOT_FOUND: there is no
  // such file. PERMISSION_DENIED: the file cannot be executed. INVALID_ARGUMENT: argv is empty.
  // INTERNAL: any other failure, with the system's message.
  absl::StatusOr<std::unique_ptr<Process>> Spawn(const SpawnOptions& options);

 private:
  struct Thread;
  std::unique_ptr<Thread> thread_;
};

// Raises the number of files that this process may have open as far as allowed. Returns the number.
size_t RaiseOpenFiles();

}  // namespace muster::process

#endif  // MUSTER_COMMON_PROCESS_PROCESS_H_
