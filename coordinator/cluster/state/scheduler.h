// The line of jobs that wait for slots, and the slots that nodes offer. A Scheduler owns nothing
// and is no part of the state: callers make a Scheduler where they need one. Pure.
#ifndef MUSTER_COORDINATOR_CLUSTER_STATE_SCHEDULER_H_
#define MUSTER_COORDINATOR_CLUSTER_STATE_SCHEDULER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/cluster/state/cluster_state.h"
#include "coordinator/jobs/job.h"
#include "coordinator/jobs/placement.h"
#include "coordinator/membership/membership.h"

namespace muster::cluster {

// Whether the agent offers this slot, or a GPU with this slot's number.
bool HasSlot(const membership::Agent& agent, uint32_t slot);

class Scheduler {
 public:
  // `state` must outlive the object.
  Scheduler(const ClusterState& state, absl::Time now) : state_(state), now_(now) {}

  // Returns a decision for each job that waits for slots of this device, in the order of the line.
  // A decision is the slots for a start now, or the reason of the wait. Some jobs get no decision,
  // so that their state_reason stays:
  // - jobs whose old processes may still run (restored.h);
  // - jobs whose not_before is in the future, after a fault of a node;
  // - jobs whose not_before is in the future, after another end, if slots are free for them.
  std::vector<jobs::Decision> Decide(jobs::Device device) const;
  // The slots that nodes offer, and which of these slots are used.
  jobs::Slots Slots(jobs::Device device) const;
  // Returns a warning if a job of this size would not fit when all offered slots are free: "needs 4
  // GPUs; 2 are offered". Otherwise empty.
  std::string TooBigFor(uint32_t world_size, jobs::Device device) const;
  // Returns whether the nodes without recent start failures have enough slots for the job, free or
  // used.
  bool MayStartElsewhere(const jobs::Job& job) const;

 private:
  // Returns whether jobs may be placed on the node.
  bool Offers(const std::string& node) const;
  // Returns the size of the largest job that could run on these nodes if all their slots were free.
  uint32_t MostOffered(jobs::Device device,
                       const std::function<bool(const std::string& node)>& counts) const;
  std::vector<jobs::WaitingJob> WaitingJobs(jobs::Device device) const;
  std::vector<jobs::PlacedJob> PlacedJobs(jobs::Device device) const;
  // Names the attached nodes on which no job may be placed, with the reasons (Nodes::WhyClosed),
  // for people; empty if there are none.
  std::string ClosedNodes() const;

  const ClusterState& state_;
  const absl::Time now_;
};

}  // namespace muster::cluster

#endif  // MUSTER_COORDINATOR_CLUSTER_STATE_SCHEDULER_H_
