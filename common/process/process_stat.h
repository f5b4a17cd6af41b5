// What the kernel says of any process of this machine, also of one that is no child: proc(5),
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
  // Of its first thread: 'R', 'S', 'D', 'Z' and so on.
  char state = '?';
  // Those that have not ended, and the first one until the process is reaped.
  int64_t threads = 0;
  // In clock ticks since the machine's start: tells a process from a later one of the same number.
  uint64_t start_time = 0;

  bool operator==(const ProcessStat&) const = default;
  // All of its threads have ended; it only waits to be reaped. The first thread alone may be a
  // zombie while another one hangs in the kernel.
  bool Ended() const;
};

// nullopt: `text` is not what such a file holds.
std::optional<ProcessStat> ParseProcessStat(const std::string& text);

// NOT_FOUND: there is no such process. Other errors: it is not known.
absl::StatusOr<ProcessStat> ReadProcessStat(pid_t pid);

}  // namespace muster::process

#endif  // MUSTER_COMMON_PROCESS_PROCESS_STAT_H_
