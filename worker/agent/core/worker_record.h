// An agent's record of a worker: its identity and its end.
#ifndef MUSTER_WORKER_AGENT_CORE_WORKER_RECORD_H_
#define MUSTER_WORKER_AGENT_CORE_WORKER_RECORD_H_

#include <compare>
#include <cstdint>
#include <string>
#include <variant>

namespace muster::agent {

// The identity of a process: a rank of a generation of a job. `incarnation` alone is unique.
struct WorkerId {
  std::string job;
  uint64_t generation = 0;
  uint32_t rank = 0;
  std::string incarnation;

  auto operator<=>(const WorkerId&) const = default;
  // "job 'a' generation 2 rank 0", for people.
  std::string ToString() const;
};

struct ExitCode {
  int code = 0;
  bool operator==(const ExitCode&) const = default;
};
struct ExitSignal {
  int signal = 0;
  bool operator==(const ExitSignal&) const = default;
};
// The worker never ran.
struct StartError {
  std::string reason;
  bool operator==(const StartError&) const = default;
};
using Ending = std::variant<ExitCode, ExitSignal, StartError>;

struct RunningWorker {
  WorkerId worker;
  int64_t pid = 0;
  bool operator==(const RunningWorker&) const = default;
};

// The reason why a worker ended, if it is known. The values are those of v1::WorkerExit::Cause.
enum class Cause {
  kUnknown = 0,
  kStoppedAsTold = 1,
  kAgentStopped = 2,
  kDrained = 3,
  kLeaseOver = 5,
  kNodeFault = 6,
};

// A worker exits with this code when its lease is over.
inline constexpr int kLeaseOverExitCode = 4;

struct EndedWorker {
  WorkerId worker;
  int64_t pid = 0;  // 0: the worker never ran
  Ending ending;
  // The worker's last lines of output.
  std::string log_tail;
  Cause cause = Cause::kUnknown;
  bool operator==(const EndedWorker&) const = default;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_CORE_WORKER_RECORD_H_
