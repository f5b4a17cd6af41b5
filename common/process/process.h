// Child processes: started in a process group (or session) of their own, ended as a group, and
// always reaped.
//
// Life cycle: a Spawner lives as long as its children should; Spawn gives a Process, whose
// destructor ends what still runs. A child has only stdin (/dev/null), stdout and stderr: every
// other descriptor of its parent is closed. Its signal mask and dispositions are the default ones,
// except for SpawnOptions::blocked, and a SIGHUP that this process ignores (nohup).
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
  // Exit code; 0 if a signal ended it.
  int code = 0;
  // The signal that ended it; 0 if it exited.
  int signal = 0;

  bool operator==(const Exit&) const = default;
  // "exit code 1" or "killed by signal 9 (Killed)".
  std::string ToString() const;
};

enum class Grouping {
  // A process group of its own: signals to the parent's terminal do not reach it.
  kOwnGroup,
  // A session of its own: nothing that happens to the parent's session or terminal reaches it.
  kOwnSession,
};

enum class Output {
  // stdout and stderr of the parent.
  kInherit,
  // Both into one pipe: Process::output().
  kPipe,
};

struct SpawnOptions {
  // argv[0] is the path of the binary (no search in PATH).
  std::vector<std::string> argv;
  // Which variables of this process's own environment the child gets, by name. Null: all.
  std::function<bool(const std::string& name)> inherits;
  // Variables that are added to those, or replaced in them.
  std::map<std::string, std::string> environment;
  Grouping grouping = Grouping::kOwnGroup;
  Output output = Output::kInherit;
  // Sent to the child (not to its own children) when this process, or the Spawner, ends. 0: none.
  int parent_death_signal = 0;
  // Signals that are blocked when the program begins: they wait until it is able to handle them.
  std::vector<int> blocked = {};
};

// One child and its process group. Thread-safe.
class Process {
 public:
  // Kills the group if it still runs, and reaps the process.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Read end of the pipe, non-blocking; -1 with Output::kInherit. Stays ours.
  int output() const { return output_.get(); }
  // Becomes readable (poll) when the process has ended. Stays ours.
  int pidfd() const { return pidfd_.get(); }

  // Sends a signal to the whole group. Has no effect after the process was waited for.
  void Signal(int signal);

  // Waits at most `timeout` (absl::InfiniteDuration(): no limit) and returns how it ended; nullopt:
  // it still runs. The rest of its group is killed before the process id is released, so no other
  // process can be killed by mistake. Later calls give the same answer.
  std::optional<Exit> Wait(absl::Duration timeout);

  // SIGTERM to the group, SIGKILL after `grace`, and waits for the end.
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

// Forks all children from one separate thread, because the kernel sends a parent death signal when
// the thread that forked ends, and not when the process ends. Thread-safe.
class Spawner {
 public:
  Spawner();
  // Ends its thread: children with a parent death signal get it.
  ~Spawner();
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;

  // Starts a process; returns once the new program runs (exec succeeded).
  // NOT_FOUND: there is no such file. PERMISSION_DENIED: it cannot be executed. INVALID_ARGUMENT:
  // argv is empty. INTERNAL: any other failure, with the system's message.
  absl::StatusOr<std::unique_ptr<Process>> Spawn(const SpawnOptions& options);

 private:
  struct Thread;
  std::unique_ptr<Thread> thread_;
};

// Lets this process have as many open files as it may. The result is how many that are.
size_t RaiseOpenFiles();

}  // namespace muster::process

#endif  // MUSTER_COMMON_PROCESS_PROCESS_H_
