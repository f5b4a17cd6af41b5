// The known agents, by node name, with their control streams and their leases (membership.h). Pure.
//
// Each message from an agent renews its lease; a broken stream renews nothing. Expire() returns
// each lost agent once, and forgets the agent.
#ifndef MUSTER_COORDINATOR_MEMBERSHIP_AGENTS_H_
#define MUSTER_COORDINATOR_MEMBERSHIP_AGENTS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/membership/timing.h"

namespace muster::membership {

// The number of a control stream, unique within a coordinator process. 0 is no stream.
using PeerStreamId = uint64_t;

// A GPU that an agent found on its host.
struct Gpu {
  uint32_t index = 0;  // on its host
  std::string uuid;
  std::string name;
  uint64_t memory_bytes = 0;

  bool operator==(const Gpu&) const = default;
};

struct Agent {
  std::string node;
  std::string incarnation;
  // The address at which other nodes reach this one.
  std::string host;
  uint32_t slots = 0;  // for jobs on the CPU
  // The GPUs that the agent found; empty until it attaches.
  std::vector<Gpu> gpus = {};
  // The version of the agent's program; empty until it attaches.
  std::string version;
  // The protocol of the agent's program; 0 until it attaches.
  uint32_t protocol = 0;
  PeerStreamId stream = 0;
  absl::Time last_seen = absl::InfinitePast();
  // The total time during which messages came from the agent. Of each gap between two messages, at
  // most two heartbeat intervals count.
  absl::Duration answered;
  absl::Time lease_end = absl::InfiniteFuture();

  bool attached() const { return stream != 0; }
};

struct LostAgent {
  Agent agent;
  std::string reason;
};

// Returns the end of the lease of an agent or worker that has just lost its stream. The stream may
// have broken before `grace`, when all holders without a stream got the new lease `grant`.
template <typename Holder>
absl::Time LeaseEndOfDetached(const Holder& holder, absl::Time grace, absl::Duration grant) {
  if (holder.last_seen >= grace) return holder.lease_end;
  return std::max(holder.lease_end, grace + grant);
}

// The holders that get a new lease.
enum class Grace { kAll, kWithoutStream };

class Agents {
 public:
  explicit Agents(const Timing& timing) : timing_(timing) {}

  struct Attached {
    // The replaced stream, which must be closed; 0 if there is none.
    PeerStreamId replaced = 0;
    // Whether another process had this name before. The workers of the former process are dead.
    bool new_incarnation = false;
  };
  // Attaches an agent's process, which takes over the name from an older process. The caller first
  // checks that this incarnation was not replaced before.
  Attached Attach(const Agent& agent, PeerStreamId stream, absl::Time now);
  // Adds an agent that the store names. It is detached, and has its whole lease.
  void Expect(const Agent& agent, absl::Time now);
  // Adds a lost agent whose workers continue. The agent is detached, and its lease is not checked
  // before the next Attach.
  void ExpectForGood(const Agent& agent) { Expect(agent, absl::InfiniteFuture()); }
  void Heard(const std::string& node, absl::Time now);
  // Detaches the agent if `stream` is still its stream. Returns whether it was.
  bool Detached(const std::string& node, PeerStreamId stream);
  void Forget(const std::string& node) { agents_.erase(node); }

  std::vector<LostAgent> Expire(absl::Time now);
  // Does the same as Membership::Grant.
  void Grant(Grace whom, absl::Time now);

  // Null if there is no such agent.
  const Agent* Find(const std::string& node) const;
  const std::map<std::string, Agent>& all() const { return agents_; }
  // Agent::answered of the node's agent at time `now`.
  absl::Duration Answered(const std::string& node, absl::Time now) const;

 private:
  void Heard(Agent* agent, absl::Time now) const;

  const Timing timing_;
  // The time of the last Grant to holders without a stream.
  absl::Time detached_had_grace_ = absl::InfinitePast();
  std::map<std::string, Agent> agents_;
};

}  // namespace muster::membership

#endif  // MUSTER_COORDINATOR_MEMBERSHIP_AGENTS_H_
