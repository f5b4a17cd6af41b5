// The processes that an agent could not end, for the agent that comes after it: docs/agent.md, A
// process that cannot be killed.
#ifndef MUSTER_WORKER_AGENT_QUARANTINE_FILE_H_
#define MUSTER_WORKER_AGENT_QUARANTINE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

struct HangingProcess {
  uint32_t slot = 0;
  RunningWorker worker;
  // process::ProcessStat::start_time, which distinguishes the process from a later one with the
  // same number.
  uint64_t start_time = 0;

  bool operator==(const HangingProcess&) const = default;
};

// True if the same process exists and has not ended, and also if /proc cannot be read.
bool StillHangs(const HangingProcess& hanging);

// Not thread-safe. One agent at a time uses the directory (Identity).
class QuarantineFile {
 public:
  // `quarantine` in the agent's state directory. Empty: nothing is kept.
  explicit QuarantineFile(const std::string& directory);

  // The processes that the former agent wrote, whether or not they still exist. A damaged line is
  // logged and ignored; so is a file that cannot be read.
  std::vector<HangingProcess> Read() const;
  // Replaces the file's contents; removes the file if there are no processes. Errors: as disk.h.
  absl::Status Write(const std::vector<HangingProcess>& processes) const;

 private:
  const std::string path_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_QUARANTINE_FILE_H_
