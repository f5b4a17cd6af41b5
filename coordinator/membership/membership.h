// The known agents and workers with their control streams, leases and progress. Pure: time is an
// argument, and streams are numbers. Nothing here is durable: after a restart the coordinator calls
// Expect... for everything in its store, with a whole lease.
//
// An agent or worker is attached while it holds a stream. Each message from it renews its lease. A
// broken stream renews nothing: a vanished process is replaced one lease after its last message,
// even if its connection is found to be dead later. Liveness (stream, heartbeat) and progress
// (watchdog.h) are judged separately.
//
// Agents::Expire() returns a lost agent once and forgets the agent. ExpireWorkers() returns a lost
// worker once and keeps it as given up until its process is known to have ended. All leases here
// are the coordinator's, Timing::Grant() long: a process that holds a lease ends itself earlier.
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

// A rank's progress with its part of a file.
struct FileWriting {
  uint64_t command = 0;  // the command that asked for the file; 0: none
  uint64_t total_bytes = 0;
  uint64_t written_bytes = 0;

  bool operator==(const FileWriting&) const = default;
};

struct Worker {
  WorkerId id;
  std::string node;
  // The worker's control stream. Its number has nothing to do with session_started, which means
  // training.
  PeerStreamId stream = 0;
  uint32_t protocol = 0;
  absl::Time last_seen = absl::InfinitePast();
  // The agent's `answered` at the time of last_seen.
  absl::Duration agent_answered;
  // The end of the lease. Infinite until the worker first attaches: until then only start-up is
  // judged.
  absl::Time lease_end = absl::InfiniteFuture();
  ProgressLimits limits;
  // The last time at which any of the following fields changed.
  absl::Time progressed = absl::InfinitePast();
  // The last time at which the worker was seen to wait for another rank (watchdog.h).
  absl::Time waited = absl::InfinitePast();
  uint64_t step = 0;
  uint64_t activity = 0;
  std::string progress;
  Collectives collectives;
  // The memory in the last heartbeat: v1::RankMemory, serialized. No decision depends on it.
  std::string memory;
  // The file that the worker writes, from its last heartbeat. No decision depends on it.
  std::optional<FileWriting> writing;
  bool session_started = false;
  // The worker has finished or will be stopped. Leases and the watchdog do not apply any more.
  bool released = false;
  // The worker was silent or hung. Its process must end, and its messages are refused. The entry is
  // kept until the process is known to have ended.
  bool given_up = false;
  // The agent of the worker's node is lost, so nobody can end the process. The process ends itself
  // when its own lease ends.
  bool node_lost = false;

  bool attached() const { return stream != 0; }
};

class Membership {
 public:
  explicit Membership(const Timing& timing) : timing_(timing), agents_(timing) {}

  Agents& agents() { return agents_; }
  const Agents& agents() const { return agents_; }

  // ---- Workers, by job and rank; each rank has one process at most.
  // Adds a process that is being started. With `attached_before`, its session had started before a
  // restart of the coordinator, so it holds a lease. A process without a started session gets its
  // lease when its agent's Hello names it. `limits`: the job's own settings; absent for the
  // defaults of Timing.
  void ExpectWorker(const WorkerId& id, const std::string& node, bool attached_before,
                    absl::Time now, const std::optional<ProgressLimits>& limits = std::nullopt);
  // Attaches the rank's process. Returns the replaced stream (0: none). FAILED_PRECONDITION
  // STALE_GENERATION or STALE_INCARNATION if it is not the expected process of the rank.
  absl::StatusOr<PeerStreamId> AttachWorker(const WorkerId& id, PeerStreamId stream, absl::Time now,
                                            uint32_t protocol = 0);
  void WorkerHeard(const WorkerId& id, absl::Time now);
  // Takes a heartbeat with the worker's progress. Returns whether `step` or `progress` changed.
  // `activity` grows with each batch and each block of bytes.
  bool WorkerProgressed(const WorkerId& id, uint64_t step, const std::string& progress,
                        uint64_t activity, Collectives collectives, absl::Time now);
  void WorkerMemory(const WorkerId& id, const std::string& memory);
  void WorkerWrites(const WorkerId& id, const std::optional<FileWriting>& writing);
  void SessionStarted(const WorkerId& id, absl::Time now);
  bool WorkerDetached(const WorkerId& id, PeerStreamId stream);
  void Release(const std::string& job, uint32_t rank);
  // Handles the loss of a node's agent. Messages of its workers are ignored from then on; each
  // worker is gone when its own lease is over. Returns the streams to close. Workers of jobs for
  // which `continues` is true stay unchanged. They are judged again when their agent is back.
  std::vector<PeerStreamId> LoseNode(const std::string& node,
                                     const std::function<bool(const std::string& job)>& continues,
                                     absl::Time now);
  // Removes the rank's process, which is gone. Returns the stream to close (0: none).
  PeerStreamId Forget(const std::string& job, uint32_t rank);

  // ---- Time.
  struct LostWorker {
    Worker worker;
    std::string reason;
    // The fields of Hang (watchdog.h), for a worker that hangs.
    std::vector<std::string> collectives = {};
    bool permanent = false;
  };
  struct Expired {
    // The workers to give up: silent workers on nodes whose agent answers, then at most one hanging
    // worker of each job.
    std::vector<LostWorker> workers;
    // Workers on nodes that were lost before. Their processes have certainly ended.
    std::vector<Worker> gone;
  };
  // Returns the workers whose time is over at `now`. The caller must first call LoseNode for the
  // agents that Agents::Expire has just returned, because their workers may be gone already.
  Expired ExpireWorkers(absl::Time now);
  // Starts all watchdogs again, and leases according to `whom`:
  // - kAll: all leases, because the coordinator itself did not run for a while.
  // - kWithoutStream: the leases of agents and workers without a stream, because they may have
  //   tried to attach without success. Messages over open streams have arrived all the time. A
  //   stream may turn out later to have ended before this call: then its holder's lease starts
  //   again, too.
  void Grant(Grace whom, absl::Time now);

  // Null if there is no such worker.
  const Worker* FindWorker(const std::string& job, uint32_t rank) const;

 private:
  // Null if the process is not the expected process of its rank, or was given up.
  Worker* Find(const WorkerId& id);
  void Heard(Worker* worker, absl::Time now);
  static void GiveUp(Worker* worker);
  // Returns whether the worker's agent was heard while the worker was silent. True if a message
  // came from the agent lately, and the agent's messages covered a whole lease in total since the
  // worker's last message. If false, the whole node may be silent, and the agent's lease decides.
  // Or the agent has attached again and the worker still needs time to attach.
  bool AgentAnswers(const Worker& worker, absl::Time now) const;
  // Adds the workers that hang.
  void ExpireHung(absl::Time now, Expired* expired);

  const Timing timing_;
  // The time of the last Grant to holders without a stream.
  absl::Time detached_had_grace_ = absl::InfinitePast();
  Agents agents_;
  std::map<std::pair<std::string, uint32_t>, Worker> workers_;
};

}  // namespace muster::membership

#endif  // MUSTER_COORDINATOR_MEMBERSHIP_MEMBERSHIP_H_
