// The kernel's report about any process of this machine, not only a child: proc(5), /proc/PID/stat.
#ifndef MUSTER_COMMON_PROCESS_PROCESS_STAT_H_
#define MUSTER_COMMON_PROCESS_PROCESS_STAT_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace muster::process {

struct ProcessStat {
  // The state of the first thread: 'R', 'S', 'D', 'Z' and so on.
  char state = '?';
  // The number of threads that have not ended. The first thread counts until the process is reaped.
  int64_t threads = 0;
  // The start in clock ticks since the machine's start. Distinguishes a process from a later one
  // with the same id.
  uint64_t start_time = 0;

  bool operator==(const ProcessStat&) const = default;
  // Returns whether all threads have ended, so that the process only waits to be reaped. A zombie
  // first thread is not enough: another thread may hang in the kernel.
  bool Ended() const;
};

// nullopt: `text` does not have the form of such a file.
std::optional<ProcessStat> ParseProcessStat(const std::string& text);

// NOT_FOUND: there is no such process. Other errors: the state is not known.
absl::StatusOr<ProcessStat> ReadProcessStat(pid_t pid);

}  // namespace muster::process

#endif  // MUSTER_COMMON_PROCESS_PROCESS_STAT_H_
