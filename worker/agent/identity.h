// An agent's state directory, which one agent uses at a time, and the id that the agent keeps
// there. The id stays the same when the agent is started again.
#ifndef MUSTER_WORKER_AGENT_IDENTITY_H_
#define MUSTER_WORKER_AGENT_IDENTITY_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/process/fd.h"

namespace muster::agent {

// The directory in which an agent keeps what outlives its process, if --state does not name one.
//
// agent-NODE-HOST-PORT (of the coordinator), so that agents of several clusters may share a
// machine. It is in $STATE_DIRECTORY, which systemd sets for a unit with StateDirectory=, else in
// $XDG_STATE_HOME/muster, else in $HOME/.local/state/muster, else in /var/lib/muster. A variable
// that is empty counts as missing.
//
// `has_id` says whether an agent has left its id in a directory. An agent that has its id in its
// user's directory keeps using that directory, and so its id, if $STATE_DIRECTORY is set later.
std::string DefaultStateDirectory(const std::string& node, const std::string& coordinator,
                                  const std::map<std::string, std::string>& environment,
                                  const std::function<bool(const std::string& directory)>& has_id);

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
