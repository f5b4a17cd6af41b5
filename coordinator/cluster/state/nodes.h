// The facts about nodes besides their agents' slots, GPUs and leases (membership::Agents). These
// are drains and cordons, agents that are being stopped, slots whose processes do not end, and
// nodes on which jobs fail. Pure: TakeChanges returns the rows to store.
#ifndef MUSTER_COORDINATOR_CLUSTER_STATE_NODES_H_
#define MUSTER_COORDINATOR_CLUSTER_STATE_NODES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/cluster/event.h"
#include "coordinator/jobs/node_health.h"
#include "coordinator/membership/membership.h"
#include "coordinator/store/store.h"

namespace muster::cluster {

// Whether jobs may be placed on a node, and the reason.
struct NodeView {
  // kDraining: an operator drains the node, or its agent is being stopped.
  enum What { kOpen, kDraining, kCordoned, kLeftOut } what = kOpen;
  // The reason why nothing is placed on the node. For kOpen: why the node is doubted
  // (jobs::NodeHealth::Doubts); empty if the node is not doubted.
  std::string reason;
  // The end of the time for which the node is left out; only for kLeftOut.
  absl::Time until = absl::InfinitePast();
};

class Nodes {
 public:
  explicit Nodes(const std::vector<store::NodeMarkRow>& stored);

  // ---- Requests of operators. Each returns the node's row to store.
  store::NodeMarkRow Drain(const NodeRequest& request);
  store::NodeMarkRow Cordon(const NodeRequest& request);
  store::NodeMarkRow Uncordon(const NodeRequest& request);
  void Forget(const std::string& node);

  // ---- Agents.
  // Returns whether this agent may have its name, which `holder` (may be null) has. ALREADY_EXISTS
  // NODE_NAME_TAKEN; FAILED_PRECONDITION STALE_INCARNATION.
  absl::Status CheckName(const AgentHello& hello, const membership::Agent* holder,
                         absl::Duration lease) const;
  // Takes an attached agent. `quarantined`: the agent's slots whose processes do not end.
  void Attached(const AgentHello& hello, bool new_process, std::set<uint32_t> quarantined);
  // Handles the end of the agent's lease.
  void AgentGone(const std::string& node);
  // Records that the agent is being stopped. Nothing is placed on the node until another process of
  // this agent attaches. True at the first call.
  bool AgentStops(const std::string& node, const std::string& reason);
  // Records that musterd is about to stop the agent. Another process of the agent does not end
  // this.
  void StopAgent(const std::string& node, const std::string& reason);
  void Quarantine(const std::string& node, uint32_t slot, bool quarantined);

  // ---- Faults.
  // True if the node is left out from now on.
  bool Failed(const std::string& node, jobs::NodeHealth::Fault fault, absl::Time now);
  // Records that a generation made progress on the node.
  void Works(const std::string& node);
  const jobs::NodeHealth& health() const { return health_; }

  // ---- Questions.
  // Returns whether a row of the node is stored.
  bool Knows(const std::string& node) const { return marks_.contains(node); }
  store::NodeMarkRow MarkOf(const std::string& node) const;
  NodeView View(const std::string& node, absl::Time now) const;
  // Returns the reason as words that follow the node's name: "is cordoned (muster cordon by ann)".
  // Empty if jobs may be placed on the node.
  std::string WhyClosed(const std::string& node, absl::Time now) const;
  // Returns whether the jobs on the node are leaving it.
  bool IsBeingEmptied(const std::string& node) const;
  // The slots whose processes do not end, by node.
  const std::map<std::string, std::set<uint32_t>>& quarantined() const { return quarantined_; }

  // ---- What must be stored.
  struct Changes {
    std::vector<store::NodeMarkRow> marks;
    std::vector<std::string> removed;
  };
  // Returns the changes. If nodes were added and more than `most` nodes are known, first forgets
  // open nodes without an agent.
  Changes TakeChanges(size_t most, const std::function<bool(const std::string&)>& has_agent);

 private:
  struct Stopping {
    std::string reason;
    // Whether the agent itself said that it is being stopped.
    bool by_agent = false;
  };

  // Returns why jobs may not be placed on the node; absent if they may. Only this function decides.
  // A new reason also needs a NodeView::What and words in WhyClosed.
  std::optional<NodeView> Closed(const std::string& node, absl::Time now) const;
  void Store(store::NodeMarkRow mark);
  void Remove(const std::string& node);
  void StoreHealth(const std::string& node);

  std::map<std::string, store::NodeMarkRow> marks_;
  std::map<std::string, Stopping> stopping_;
  std::map<std::string, std::set<uint32_t>> quarantined_;
  jobs::NodeHealth health_;
  // The changes since the last TakeChanges.
  std::set<std::string> changed_;
  bool grew_ = false;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_STATE_NODES_H_
