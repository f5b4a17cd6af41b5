// The decisions of musterd: the real cluster core over the memory store, driven as by the engine of
// coordinator/service. New events are applied, the changes are committed, and only then effects and
// answers are sent. The process can be killed at any of these points, stopped, and started from the
// committed state or an older copy of this state.
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
  struct Callbacks {
    // Called at the peer when a message arrives.
    std::function<void(StreamId, const cluster::AgentOrder&)> to_agent;
    std::function<void(StreamId, const cluster::WorkerOrder&)> to_worker;
    // The batch that has just become durable.
    std::function<void(const store::Batch&, const cluster::Cluster&)> committed;
  };
  CoordinatorProcess(Timeline* timeline, Network* network, const cluster::Options& options,
                     int ticks_per_lease, Callbacks callbacks);

  void Start();
  void Kill();
  // Makes the process do nothing for this long, without notice to other processes.
  void StandStill(absl::Duration duration);
  // Makes the process die at its next transaction, before or after the transaction is durable. In
  // both cases nobody gets a message about the transaction.
  void DieAtCommit(bool after) {
    crash_point_ = after ? CrashPoint::kAfterCommit : CrashPoint::kBeforeCommit;
  }
  // Makes every transaction fail: the first one is held back with its effects, and only heartbeats
  // are applied.
  void FailCommits(bool fail) { commits_fail_ = fail; }

  // ---- Events; they have no effect while it is not running.
  using Apply = std::function<absl::Status(cluster::Cluster&, absl::Time)>;
  using Done = std::function<void(const absl::Status& applied)>;
  // Takes a message of a stream. The stream ends with the error, if there is one.
  void Take(StreamId stream, Apply apply);
  // Takes a heartbeat, which is handled before messages that wait for the store.
  void Aside(StreamId stream, Apply apply);
  // Takes a call. done: called when the change is durable; not called if the process dies before.
  void Call(Apply apply, Done done);
  void StreamBroke(StreamId stream) override;

  bool running() const { return cluster_ != nullptr; }
  // Null while the process does not run.
  cluster::Cluster* cluster() { return cluster_.get(); }

  // ---- What is stored.
  store::MemoryStore& store() { return *store_; }
  void Backup() { backup_ = std::make_unique<store::MemoryStore>(*store_); }
  bool has_backup() const { return backup_ != nullptr; }
  store::MemoryStore& backup() { return *backup_; }
  // Replaces the store by the backup. Only while the process does not run.
  void RestoreBackup() { store_ = std::make_unique<store::MemoryStore>(*backup_); }

 private:
  enum class CrashPoint { kNever, kBeforeCommit, kAfterCommit };
  struct Task {
    StreamId stream = 0;
    Apply apply;
    Done done;
    absl::Status applied;
  };
  // The batch that is being stored, and the events that wait until it is stored.
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
  // Answers the messages whose answers must not wait for the store.
  void RefuseWhoDoesNotWait();
  void LetOut(const cluster::Effect& effect);
  void Close(StreamId stream, const absl::Status& why);

  Timeline& timeline_;
  Network& network_;
  cluster::Options options_;
  const int ticks_per_lease_;
  const Callbacks callbacks_;

  std::unique_ptr<store::MemoryStore> store_ = std::make_unique<store::MemoryStore>();
  std::unique_ptr<store::MemoryStore> backup_;
  uint64_t incarnations_ = 0;
  // A number that grows with each start, so that events of an earlier process are ignored.
  uint64_t process_ = 0;
  std::unique_ptr<cluster::Cluster> cluster_;
  std::deque<Task> tasks_;
  std::deque<Task> aside_;
  std::optional<Commit> commit_;
  std::optional<absl::Time> trouble_since_;
  std::set<StreamId> ended_;
  // The streams on which something was sent.
  std::set<StreamId> answered_;
  bool work_scheduled_ = false;
  bool tick_due_ = false;
  absl::Time last_wake_;
  absl::Time still_until_ = absl::InfinitePast();
  CrashPoint crash_point_ = CrashPoint::kNever;
  bool commits_fail_ = false;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_COORDINATOR_PROCESS_H_
