// What the kernel reports about any process of this machine, not only a child: proc(5),
// /proc/PID/stat.
#ifndef MUSTER_COMMON_PROCESS_PROCESS_STAT_H_
#define MUSTER_COMMON_PROCESS_PROCESS_STAT_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace muster::process {

struct ProcessStat {
  // The state of its first thread: 'R', 'S', 'D', 'Z' and so on.
  char state = '?';
  // The number of threads: those that have not ended, and the first one until the process is
  // reaped.
  int64_t threads = 0;
  // In clock ticks since the machine's start: distinguishes a process from a later one with the
  // same id.
  uint64_t start_time = 0;

  bool operator==(const ProcessStat&) const = default;
  // All of its threads have ended; it only waits to be reaped. The first thread alone may be a
  // zombie while another one hangs in the kernel.
  bool Ended() const;
};

// nullopt: `text` does not have the form of such a file.
std::optional<ProcessStat> ParseProcessStat(const std::string& text);

// NOT_FOUND: there is no such process. Other errors: its state is not known.
absl::StatusOr<ProcessStat> ReadProcessStat(pid_t pid);

}  // namespace muster::process

#endif  // MUSTER_COMMON_PROCESS_PROCESS_STAT_H_
