// Who an agent is, over its processes: an id that it keeps on its disk, in a directory that one
// agent uses at a time.
#ifndef MUSTER_WORKER_AGENT_IDENTITY_H_
#define MUSTER_WORKER_AGENT_IDENTITY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/process/fd.h"

namespace muster::agent {

class Identity {
 public:
  // Takes the directory, which is made where it is missing, until this object ends; so does the end
  // of the process, however it comes. Empty: the agent has no id; for tests. Errors:
  // FAILED_PRECONDITION: another agent uses it; UNAVAILABLE: it cannot be written.
  static absl::StatusOr<std::unique_ptr<Identity>> Take(const std::string& directory);

  // An agent has left its id there.
  static bool IsIn(const std::string& directory);

  const std::string& id() const { return id_; }

 private:
  Identity() = default;

  std::string id_;
  process::Fd lock_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_IDENTITY_H_
