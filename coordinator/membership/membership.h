// Who is there: agents and workers, their control streams, their leases and their progress. Pure:
// time is an argument, streams are numbers, and nothing here is durable (after a restart the
// coordinator expects again what its store says, with a fresh lease).
//
// An agent or worker is attached while it holds a stream. Hearing from it renews its lease. A
// broken stream renews nothing: who vanished is replaced one lease after it was heard last,
// whenever the connection was found to be dead; only holders of an older protocol count from the
// break of their stream. Liveness (stream, heartbeat) and progress (watchdog.h) are judged apart.
// ExpireAgents() and ExpireWorkers() name those that are lost, once, and forget them. All leases
// here are the coordinator's, Timing::Grant() long: who holds one has ended before.
#ifndef MUSTER_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H_
#define MUSTER_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/membership/timing.h"
#include "coordinator/membership/watchdog.h"
#include "coordinator/membership/worker_id.h"

namespace muster::membership {

// One control stream; unique within a coordinator process. 0: none.
using SessionId = uint64_t;

// From these protocols on heartbeats are acknowledged, and a lease is counted from the last one.
// The lease of an older program is counted from the break of its stream.
inline constexpr uint32_t kAcknowledgedAgentProtocol = 2;
inline constexpr uint32_t kAcknowledgedWorkerProtocol = 3;

struct Agent {
  std::string node;
  std::string incarnation;
  // Where other nodes reach this one.
  std::string host;
  uint32_t slots = 0;
  // Of its program; empty until it attaches.
  std::string version;
  // That it speaks; 0 until it attaches.
  uint32_t protocol = 0;
  SessionId session = 0;
  absl::Time last_seen = absl::InfinitePast();
  // For how long it has been heard so far; of each gap two heartbeats count at most.
  absl::Duration answered;
  absl::Time lease_end = absl::InfiniteFuture();

  bool attached() const { return session != 0; }
};

struct Worker {
  WorkerId id;
  std::string node;
  SessionId session = 0;
  uint32_t protocol = kAcknowledgedWorkerProtocol;
  absl::Time last_seen = absl::InfinitePast();
  // Its agent's `answered` of then.
  absl::Duration agent_answered;
  // Infinite until it first attaches: until then only start-up is judged.
  absl::Time lease_end = absl::InfiniteFuture();
  Patience patience;
  // The last time that anything changed of what follows.
  absl::Time progressed = absl::InfinitePast();
  // When it was last seen to wait for another rank (watchdog.h).
  absl::Time waited = absl::InfinitePast();
  uint64_t step = 0;
  uint64_t activity = 0;
  std::string progress;
  Collectives collectives;
  // What it said of its memory last: v1::RankMemory, serialized; nothing is judged by it.
  std::string memory;
  bool session_started = false;
  // Finished, or to be stopped: judged no more.
  bool released = false;
  // It was silent or hung: its process is to end, and is refused. It is kept until that is known to
  // have happened.
  bool given_up = false;
  // The agent of its node is lost: nobody can end the process, which ends itself with its own
  // lease.
  bool node_lost = false;

  bool attached() const { return session != 0; }
};

class Membership {
 public:
  explicit Membership(const Timing& timing) : timing_(timing) {}

  // ---- Agents, by node name.
  struct Attached {
    // The stream that is no longer the owner's, to be closed; 0: none.
    SessionId replaced = 0;
    // Another process than the one known under this name so far: that one's workers are dead.
    bool new_incarnation = false;
  };
  // A newer process takes the name over; the caller knows which incarnations were replaced before.
  Attached AttachAgent(const Agent& agent, SessionId session, absl::Time now);
  // Known from the store: detached, with a fresh lease.
  void ExpectAgent(const Agent& agent, absl::Time now);
  void AgentHeard(const std::string& node, absl::Time now);
  // Only where `session` is still its stream. Returns whether it was.
  bool AgentDetached(const std::string& node, SessionId session, absl::Time now);

  // ---- Workers, by job and rank: one owner each.
  // A process that is being started, or (attached_before) whose session had started before a
  // restart: it holds a lease. One that was only welcomed gets its lease with its agent's Hello,
  // which names it.
  // patience: the job's own; absent: Timing's.
  void ExpectWorker(const WorkerId& id, const std::string& node, bool attached_before,
                    absl::Time now, const std::optional<Patience>& patience = std::nullopt);
  // FAILED_PRECONDITION STALE_GENERATION | STALE_INCARNATION: not the expected process of the rank.
  // The result is the stream it replaces (0: none).
  absl::StatusOr<SessionId> AttachWorker(const WorkerId& id, SessionId session, absl::Time now,
                                         uint32_t protocol = kAcknowledgedWorkerProtocol);
  void WorkerHeard(const WorkerId& id, absl::Time now);
  // A sign of life that also says where it is. Returns whether step or progress differ from before.
  // activity: grows with each batch and block of bytes.
  bool WorkerProgressed(const WorkerId& id, uint64_t step, const std::string& progress,
                        uint64_t activity, Collectives collectives, absl::Time now);
  void WorkerMemory(const WorkerId& id, const std::string& memory);
  void SessionStarted(const WorkerId& id, absl::Time now);
  bool WorkerDetached(const WorkerId& id, SessionId session, absl::Time now);
  void Release(const std::string& job, uint32_t rank);
  // The node's agent is lost. Its workers are heard no more; each is gone when its own lease is
  // over. The result are the streams to close. Workers of jobs for which `continues` stay as they
  // are: they are judged again once their agent is back.
  std::vector<SessionId> LoseNode(const std::string& node,
                                  const std::function<bool(const std::string& job)>& continues,
                                  absl::Time now);
  // A lost agent whose workers go on: known, detached, and not judged until it is back.
  void ExpectForGood(const Agent& agent);
  void ForgetAgent(const std::string& node) { agents_.erase(node); }
  // Its process is gone. The result is the stream to close (0: none).
  SessionId Forget(const std::string& job, uint32_t rank);

  // ---- Time.
  struct LostAgent {
    Agent agent;
    std::string reason;
  };
  struct LostWorker {
    Worker worker;
    std::string reason;
    // Of one that hangs: Hang's.
    std::vector<std::string> collectives = {};
  };
  struct Expired {
    // Silent, of nodes whose agent is there; then those that hang, one of a job at most. They are
    // given up from now on.
    std::vector<LostWorker> workers;
    // Of nodes that were lost before: their processes have certainly ended.
    std::vector<Worker> gone;
  };
  std::vector<LostAgent> ExpireAgents(absl::Time now);
  // After LoseNode of the agents that were lost just now: what ran there may be gone already.
  Expired ExpireWorkers(absl::Time now);
  // Every lease and watchdog begins anew: the coordinator itself was away.
  void GrantFreshGrace(absl::Time now);
  // The leases of those without a stream, who may have tried in vain to come back, begin anew, and
  // all watchdogs. Who has a stream was heard all the time, unless its end is told only later: then
  // that lease begins anew, too.
  void GrantGraceToDetached(absl::Time now);

  // ---- Looking. Null when not known.
  const Agent* FindAgent(const std::string& node) const;
  const Worker* FindWorker(const std::string& job, uint32_t rank) const;
  const std::map<std::string, Agent>& agents() const { return agents_; }
  const Timing& timing() const { return timing_; }

 private:
  // Null where it is not the expected process, or was given up.
  Worker* Find(const WorkerId& id);
  void Heard(Worker* worker, absl::Time now);
  static void GiveUp(Worker* worker);
  void Heard(Agent* agent, absl::Time now) const;
  // `answered` as of now.
  absl::Duration Answered(const std::string& node, absl::Time now) const;
  // Its agent was heard just now, and for a whole lease since the worker was. Else the silence may
  // be that of the whole node, which is the agent's to be judged by, or the worker has not come
  // back yet as its agent has.
  bool AgentAnswers(const Worker& worker, absl::Time now) const;
  // Adds who hangs.
  void ExpireHung(absl::Time now, Expired* expired);
  // Of one that lost its stream just now.
  template <typename Holder>
  absl::Time LeaseEndOfDetached(const Holder& holder, uint32_t acknowledged_protocol,
                                absl::Time now) const;

  const Timing timing_;
  // The last GrantGraceToDetached.
  absl::Time detached_had_grace_ = absl::InfinitePast();
  std::map<std::string, Agent> agents_;
  std::map<std::pair<std::string, uint32_t>, Worker> workers_;
};

}  // namespace muster::membership

#endif  // MUSTER_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H_
