// The directory in which an agent keeps what outlives its process, if --state does not name one.
#ifndef MUSTER_WORKER_AGENT_STATE_DIRECTORY_H_
#define MUSTER_WORKER_AGENT_STATE_DIRECTORY_H_

#include <functional>
#include <map>
#include <string>

namespace muster::agent {

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

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_STATE_DIRECTORY_H_
