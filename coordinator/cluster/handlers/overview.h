// The questions that the service may ask of the Cluster, whose parts the service does not see.
// Changes nothing.
#ifndef MUSTER_COORDINATOR_CLUSTER_HANDLERS_OVERVIEW_H_
#define MUSTER_COORDINATOR_CLUSTER_HANDLERS_OVERVIEW_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "coordinator/cluster/effect.h"
#include "coordinator/cluster/state/cluster_state.h"
#include "coordinator/cluster/state/scheduler.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/placement.h"

namespace muster::cluster {

// The state of the store when jobs are told to leave a node.
enum class StoreState {
  // The store can be written. The cluster's own decision about the jobs (LeaveNode) follows at
  // once.
  kWorks,
  // The store cannot be written, so no decision can follow. Jobs that begin to train, or for which
  // a stop waits, get the notice, too.
  kInTrouble,
};

class Overview {
 public:
  // `state` must outlive the object.
  explicit Overview(const ClusterState* state) : state_(*state) {}

  // ---- Nodes.
  // The node's view at the last tick.
  NodeView View(const std::string& node) const { return state_.nodes.View(node, state_.last_tick); }
  // The id of the newest agent with this name; empty if the agent has no id.
  std::string AgentId(const std::string& node) const { return state_.nodes.MarkOf(node).agent_id; }
  size_t QuarantinedSlots(const std::string& node) const;
  // The ranks whose processes may be on this node, in order, by job id.
  std::map<std::string, std::vector<uint32_t>> RanksOn(const std::string& node) const {
    return state_.jobs.RanksOn(node);
  }
  // A number that changes when jobs on this node make progress.
  uint64_t ActivityOn(const std::string& node) const;
  // ActivityOn the agent's node while the node is being emptied, else 0. The acknowledgement of a
  // heartbeat carries this number. The agent needs the number because workers that only compute
  // write nothing that the agent could see.
  uint64_t DrainActivity(PeerStreamId stream) const;
  // Returns the notices for all workers of each job with ranks on this node: save a checkpoint at
  // the next step boundary, and end. Changes nothing in the cluster, so that the notices can be
  // sent while the store cannot be written. A repeated notice has no effect.
  std::vector<SendToWorker> PreemptionNotices(const std::string& node, const std::string& reason,
                                              StoreState store) const;

  // ---- Slots.
  // The slots that nodes offered at the last tick.
  jobs::Slots OfferedSlots(jobs::Device device) const { return scheduler().Slots(device); }
  std::string TooBigFor(uint32_t world_size, jobs::Device device) const {
    return scheduler().TooBigFor(world_size, device);
  }

  // ---- Jobs.
  // StepDone::metrics of the newest steps of a generation that trains, oldest first, at most
  // kSpeedSteps. Steps from before this object was made are missing.
  const std::deque<std::string>& NewestSteps(const std::string& job_id) const;

 private:
  Scheduler scheduler() const { return {state_, state_.last_tick}; }

  const ClusterState& state_;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_HANDLERS_OVERVIEW_H_
