// The known agents, by node name, with their control streams and their leases (membership.h). Pure.
//
// Each message from an agent renews its lease; a broken stream renews nothing. Expire() returns
// each lost agent once, and forgets it.
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

// One control stream; unique within a coordinator process. 0: none.
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
  // What it found; empty until it attaches.
  std::vector<Gpu> gpus = {};
  // The version of its program; empty until it attaches.
  std::string version;
  // The protocol of its program; 0 until it attaches.
  uint32_t protocol = 0;
  PeerStreamId session = 0;
  absl::Time last_seen = absl::InfinitePast();
  // The total time during which messages came from it. Of each gap between two messages, at most
  // two heartbeat intervals count.
  absl::Duration answered;
  absl::Time lease_end = absl::InfiniteFuture();

  bool attached() const { return session != 0; }
};

struct LostAgent {
  Agent agent;
  std::string reason;
};

// The end of the lease of an agent or worker that has just lost its stream. It may have lost the
// stream before `grace`, when everybody without a stream got the new lease `grant`.
template <typename Holder>
absl::Time LeaseEndOfDetached(const Holder& holder, absl::Time grace, absl::Duration grant) {
  if (holder.last_seen >= grace) return holder.lease_end;
  return std::max(holder.lease_end, grace + grant);
}

// Who gets a new lease.
enum class Grace { kAll, kWithoutStream };

class Agents {
 public:
  explicit Agents(const Timing& timing) : timing_(timing) {}

  struct Attached {
    // The stream that was replaced and must be closed; 0: none.
    PeerStreamId replaced = 0;
    // Another process had this name before, and the workers of the former process are dead.
    bool new_incarnation = false;
  };
  // A newer process takes over the name. The caller checks which incarnations were replaced before.
  Attached Attach(const Agent& agent, PeerStreamId session, absl::Time now);
  // Adds an agent that the store names: it is detached, and its whole lease remains.
  void Expect(const Agent& agent, absl::Time now);
  // Adds a lost agent whose workers continue: it is detached, and its lease is not checked until it
  // attaches again.
  void ExpectForGood(const Agent& agent) { Expect(agent, absl::InfiniteFuture()); }
  void Heard(const std::string& node, absl::Time now);
  // Has an effect only if `session` is still its stream. Returns whether it was.
  bool Detached(const std::string& node, PeerStreamId session);
  void Forget(const std::string& node) { agents_.erase(node); }

  std::vector<LostAgent> Expire(absl::Time now);
  // As in Membership.
  void Grant(Grace whom, absl::Time now);

  // Null: there is no such agent.
  const Agent* Find(const std::string& node) const;
  const std::map<std::string, Agent>& all() const { return agents_; }
  // `answered` of the node's agent as of now.
  absl::Duration Answered(const std::string& node, absl::Time now) const;

 private:
  void Heard(Agent* agent, absl::Time now) const;

  const Timing timing_;
  // The last Grant to those without a stream.
  absl::Time detached_had_grace_ = absl::InfinitePast();
  std::map<std::string, Agent> agents_;
};

}  // namespace muster::membership

#endif  // MUSTER_COORDINATOR_MEMBERSHIP_AGENTS_H_
