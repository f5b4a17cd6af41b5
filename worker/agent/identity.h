// The id of an agent, which stays the same when the agent is started again. The agent keeps it on
// its disk, in a directory that one agent uses at a time.
#ifndef MUSTER_WORKER_AGENT_IDENTITY_H_
#define MUSTER_WORKER_AGENT_IDENTITY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/process/fd.h"

namespace muster::agent {

class Identity {
 public:
  // Locks the directory, which is created if it is missing. The lock ends with this object, and
  // with the process, however the process ends. Empty (for tests): the agent has no id. Errors:
  // FAILED_PRECONDITION: another agent uses the directory; UNAVAILABLE: it cannot be written.
  static absl::StatusOr<std::unique_ptr<Identity>> Take(const std::string& directory);

  // True if an agent has left its id there.
  static bool IsIn(const std::string& directory);

  const std::string& id() const { return id_; }

 private:
  Identity() = default;

  std::string id_;
  process::Fd lock_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_IDENTITY_H_
