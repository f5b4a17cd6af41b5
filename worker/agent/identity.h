// An agent's state directory, which one agent uses at a time, and the agent's id in this directory.
// The id stays the same when the agent is started again.
#ifndef MUSTER_WORKER_AGENT_IDENTITY_H_
#define MUSTER_WORKER_AGENT_IDENTITY_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/process/fd.h"

namespace muster::agent {

// The directory in which an agent keeps data that outlive its process, if --state does not name
// one.
//
// The name is agent-NODE-HOST-PORT (of the coordinator), so that agents of several clusters may
// share a machine. Its parent is the first of these; an empty variable counts as missing:
// - $STATE_DIRECTORY, which systemd sets for a unit with StateDirectory=;
// - $XDG_STATE_HOME/muster;
// - $HOME/.local/state/muster;
// - /var/lib/muster.
//
// `has_id` tells whether a directory contains an agent's id. An agent with its id in its user's
// directory keeps using this directory and this id, even if $STATE_DIRECTORY is set later.
std::string DefaultStateDirectory(const std::string& node, const std::string& coordinator,
                                  const std::map<std::string, std::string>& environment,
                                  const std::function<bool(const std::string& directory)>& has_id);

class Identity {
 public:
  // Locks the directory, and creates a missing directory. The lock ends with this object, or with
  // the process in any way. Empty (for tests): the agent has no id. FAILED_PRECONDITION: another
  // agent uses the directory. UNAVAILABLE: the directory cannot be written.
  static absl::StatusOr<std::unique_ptr<Identity>> Take(const std::string& directory);

  // True if the directory contains an agent's id.
  static bool IsIn(const std::string& directory);

  const std::string& id() const { return id_; }

 private:
  Identity() = default;

  std::string id_;
  process::Fd lock_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_IDENTITY_H_
