// musterd as far as it decides: the real cluster over the memory store, driven as the engine of
// coordinator/service does it. What happened since the last time is applied, what changed is
// committed, and only then effects and answers leave. It can be killed at any of these points,
// stopped, and started from what was committed, or from an older copy of that.
#ifndef MUSTER_TESTS_SIMULATION_COORDINATOR_PROCESS_H_
#define MUSTER_TESTS_SIMULATION_COORDINATOR_PROCESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/store/memory_store.h"
#include "tests/simulation/network.h"
#include "tests/simulation/timeline.h"

namespace muster::simulation {

class CoordinatorProcess : public Network::Server {
 public:
  struct Outside {
    // At the peer, when it arrives there.
    std::function<void(StreamId, const cluster::AgentOrder&)> to_agent;
    std::function<void(StreamId, const cluster::WorkerOrder&)> to_worker;
    // What has just become durable.
    std::function<void(const store::Batch&, const cluster::Cluster&)> committed;
  };
  CoordinatorProcess(Timeline* timeline, Network* network, const cluster::Options& options,
                     int ticks_per_lease, Outside outside);

  void Start();
  void Kill();
  // It does nothing for so long, and nobody is told.
  void StandStill(absl::Duration duration);
  // Dies at its next transaction: before or after that is durable,
  // in both cases before anybody hears of it.
  void DieAtCommit(bool after) { dies_ = after ? Dies::kAfterCommit : Dies::kBeforeCommit; }
  // No transaction succeeds: the first one is held with its effects, and nothing else is applied
  // but heartbeats.
  void FailCommits(bool fail) { commits_fail_ = fail; }

  // ---- What happens to it; nothing while it is not running.
  using Apply = std::function<absl::Status(cluster::Cluster&, absl::Time)>;
  using Done = std::function<void(const absl::Status& applied)>;
  // A message of a stream, which ends with the error.
  void Take(StreamId stream, Apply apply);
  // A heartbeat: overtakes what waits for the store.
  void Aside(StreamId stream, Apply apply);
  // A call; done: when it is durable. Not called where the process dies before.
  void Call(Apply apply, Done done);
  void StreamBroke(StreamId stream) override;

  bool running() const { return cluster_ != nullptr; }
  // Null while it is not running.
  cluster::Cluster* cluster() { return cluster_.get(); }

  // ---- What is stored.
  store::MemoryStore& store() { return *store_; }
  void Backup() { backup_ = std::make_unique<store::MemoryStore>(*store_); }
  bool has_backup() const { return backup_ != nullptr; }
  store::MemoryStore& backup() { return *backup_; }
  // Only while it is not running.
  void RestoreBackup() { store_ = std::make_unique<store::MemoryStore>(*backup_); }

 private:
  enum class Dies { kNever, kBeforeCommit, kAfterCommit };
  struct Task {
    StreamId stream = 0;
    Apply apply;
    Done done;
    absl::Status applied;
  };
  // What is on its way into the store, and what waits for it.
  struct Commit {
    store::Batch batch;
    std::vector<cluster::Effect> effects;
    std::deque<Task> tasks;
  };

  void Post(Task task);
  void ScheduleWork(absl::Duration delay);
  void ScheduleTick();
  void Work();
  void ApplyTasks(absl::Time now);
  void TryCommit(absl::Time now);
  // Answers those who must not wait for the store.
  void RefuseWhoDoesNotWait();
  void LetOut(const cluster::Effect& effect);
  void Close(StreamId stream, const absl::Status& why);

  Timeline& timeline_;
  Network& network_;
  cluster::Options options_;
  const int ticks_per_lease_;
  const Outside outside_;

  std::unique_ptr<store::MemoryStore> store_ = std::make_unique<store::MemoryStore>();
  std::unique_ptr<store::MemoryStore> backup_;
  uint64_t incarnations_ = 0;
  // Grows with each start: what belongs to a former process is ignored.
  uint64_t process_ = 0;
  std::unique_ptr<cluster::Cluster> cluster_;
  std::deque<Task> tasks_;
  std::deque<Task> aside_;
  std::optional<Commit> commit_;
  std::optional<absl::Time> trouble_since_;
  std::set<StreamId> ended_;
  // Something was sent to them.
  std::set<StreamId> answered_;
  bool work_scheduled_ = false;
  bool tick_due_ = false;
  absl::Time last_wake_;
  absl::Time still_until_ = absl::InfinitePast();
  Dies dies_ = Dies::kNever;
  bool commits_fail_ = false;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_COORDINATOR_PROCESS_H_
