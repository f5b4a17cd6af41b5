// The known agents and workers with their control streams, their leases and their progress. Pure:
// time is an argument, streams are numbers, and nothing here is durable (after a restart the
// coordinator calls Expect... for everything that its store has, with a whole lease).
//
// An agent or worker is attached while it holds a stream. Each message from it renews its lease. A
// broken stream renews nothing: a process that has vanished is replaced one lease after its last
// message, no matter when the connection was found to be dead. Liveness (stream, heartbeat) and
// progress (watchdog.h) are judged separately. Agents::Expire() returns a lost agent once and
// forgets it. ExpireWorkers() returns a lost worker once and keeps it, given up, until its process
// is known to have ended. All leases here are those of the coordinator, Timing::Grant() long: a
// process that holds a lease ends itself before its lease ends here.
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
#include "coordinator/membership/agents.h"
#include "coordinator/membership/timing.h"
#include "coordinator/membership/watchdog.h"
#include "coordinator/membership/worker_id.h"

namespace muster::membership {

// How far a rank has come with its part of a file that it writes.
struct FileWriting {
  uint64_t command = 0;  // asked for it; 0: none
  uint64_t total_bytes = 0;
  uint64_t written_bytes = 0;

  bool operator==(const FileWriting&) const = default;
};

struct Worker {
  WorkerId id;
  std::string node;
  // Its control stream. The session of session_started is the one that trains.
  PeerStreamId session = 0;
  uint32_t protocol = 0;
  absl::Time last_seen = absl::InfinitePast();
  // Its agent's `answered` at the time of last_seen.
  absl::Duration agent_answered;
  // Infinite until it first attaches: until then only start-up is judged.
  absl::Time lease_end = absl::InfiniteFuture();
  ProgressLimits limits;
  // The last time at which any of the following changed.
  absl::Time progressed = absl::InfinitePast();
  // When it was last seen to wait for another rank (watchdog.h).
  absl::Time waited = absl::InfinitePast();
  uint64_t step = 0;
  uint64_t activity = 0;
  std::string progress;
  Collectives collectives;
  // The memory in its last heartbeat: v1::RankMemory, serialized. No decision depends on it.
  std::string memory;
  // What it writes now, as of its last heartbeat. No decision depends on it.
  std::optional<FileWriting> writing;
  bool session_started = false;
  // It has finished or will be stopped: leases and the watchdog do not apply any more.
  bool released = false;
  // It was silent or hung: its process must end, and its messages are refused. The entry is kept
  // until the process is known to have ended.
  bool given_up = false;
  // The agent of its node is lost: nobody can end the process. It ends itself when its own lease
  // ends.
  bool node_lost = false;

  bool attached() const { return session != 0; }
};

class Membership {
 public:
  explicit Membership(const Timing& timing) : timing_(timing), agents_(timing) {}

  Agents& agents() { return agents_; }
  const Agents& agents() const { return agents_; }

  // ---- Workers, by job and rank: one owner each.
  // A process that is being started. With `attached_before`, its session had started before a
  // restart of the coordinator, so it holds a lease. A process that was only welcomed gets its
  // lease with its agent's Hello, which names it. `limits`: the job's own settings; absent: those
  // of Timing.
  void ExpectWorker(const WorkerId& id, const std::string& node, bool attached_before,
                    absl::Time now, const std::optional<ProgressLimits>& limits = std::nullopt);
  // FAILED_PRECONDITION STALE_GENERATION | STALE_INCARNATION: not the expected process of the rank.
  // Returns the stream that is replaced (0: none).
  absl::StatusOr<PeerStreamId> AttachWorker(const WorkerId& id, PeerStreamId session,
                                            absl::Time now, uint32_t protocol = 0);
  void WorkerHeard(const WorkerId& id, absl::Time now);
  // A heartbeat with the worker's progress. Returns whether `step` or `progress` differ from
  // before. `activity` grows with each batch and each block of bytes.
  bool WorkerProgressed(const WorkerId& id, uint64_t step, const std::string& progress,
                        uint64_t activity, Collectives collectives, absl::Time now);
  void WorkerMemory(const WorkerId& id, const std::string& memory);
  void WorkerWrites(const WorkerId& id, const std::optional<FileWriting>& writing);
  void SessionStarted(const WorkerId& id, absl::Time now);
  bool WorkerDetached(const WorkerId& id, PeerStreamId session);
  void Release(const std::string& job, uint32_t rank);
  // The node's agent is lost. Messages of its workers are ignored from now on; each worker is gone
  // when its own lease is over. Returns the streams to close. Workers of jobs for which `continues`
  // is true stay as they are; they are judged again once their agent is back.
  std::vector<PeerStreamId> LoseNode(const std::string& node,
                                     const std::function<bool(const std::string& job)>& continues,
                                     absl::Time now);
  // The rank's process is gone. Returns the stream to close (0: none).
  PeerStreamId Forget(const std::string& job, uint32_t rank);

  // ---- Time.
  struct LostWorker {
    Worker worker;
    std::string reason;
    // For a worker that hangs: the fields of Hang (watchdog.h).
    std::vector<std::string> collectives = {};
    bool permanent = false;
  };
  struct Expired {
    // Silent workers on nodes whose agent is not silent; then workers that hang, at most one of
    // each job. They are given up from now on.
    std::vector<LostWorker> workers;
    // Workers on nodes that were lost before: their processes have certainly ended.
    std::vector<Worker> gone;
  };
  // Call LoseNode first for the agents that Agents::Expire has just returned: their workers may be
  // gone already.
  Expired ExpireWorkers(absl::Time now);
  // Starts all watchdogs again, and the leases of all, because the coordinator itself did not run
  // for a while; or those of agents and workers without a stream, because they may have tried to
  // attach without success. The messages of those with a stream have arrived all the time. If it
  // turns out later that such a stream had already ended, that lease starts again, too.
  void Grant(Grace whom, absl::Time now);

  // Null: there is no such worker.
  const Worker* FindWorker(const std::string& job, uint32_t rank) const;

 private:
  // Null if it is not the expected process, or was given up.
  Worker* Find(const WorkerId& id);
  void Heard(Worker* worker, absl::Time now);
  static void GiveUp(Worker* worker);
  // True if a message came from the worker's agent lately, and messages came from it for a whole
  // lease in total since the worker's last message. Otherwise the whole node may be silent, which
  // the agent's lease decides; or the agent has attached again and the worker has not had the time
  // to do so.
  bool AgentAnswers(const Worker& worker, absl::Time now) const;
  // Adds the workers that hang.
  void ExpireHung(absl::Time now, Expired* expired);

  const Timing timing_;
  // The last Grant to those without a stream.
  absl::Time detached_had_grace_ = absl::InfinitePast();
  Agents agents_;
  std::map<std::pair<std::string, uint32_t>, Worker> workers_;
};

}  // namespace muster::membership

#endif  // MUSTER_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H_
