// The one place where the coordinator's state changes: a thread that takes what happened from a
// queue, applies all of it to the cluster, has what changed committed in one transaction, and only
// then lets effects and answers out.
//
// A second thread commits, so that a disk that is slow or says no holds up nothing but what has to
// be durable:
// - Heartbeats have a lane of their own. They are applied at once, each as of the time at which it
//   came, also while a commit is under way or is tried again.
// - A commit that fails is held, with its effects, and tried again until it succeeds; meanwhile
//   nothing else is applied. What peers report waits. Calls of clients are answered with
//   UNAVAILABLE STORE_TROUBLE at once; those that were applied already take effect all the same
//   once the disk is well, so a caller repeats with the same request id.
// - Streams of agents and workers that are not taken in yet, whose hello would have to wait, are
//   ended with UNAVAILABLE STORE_TROUBLE: whoever is told so holds on to its lease, and comes
//   again. Once the store is well those without a stream have a new lease.
// - When the disk is full, the store's reserve is given up for the commit that failed. Until the
//   store can have it back, only deletions are applied, and reads are answered. So it begins where
//   the disk was too full for a reserve when the store was opened.
// - A store whose data is damaged (DATA_LOSS) is the end: everything is answered with UNAVAILABLE,
//   and `on_failure` is told.
//
// What is read is what is committed: while a commit is held, reads of jobs are refused, too.
//
// Life cycle: Start, then Post from any thread; the destructor stops. Functions given to Post run
// on the engine's thread, without any lock held, so they may call gRPC.
#ifndef MUSTER_COORDINATOR_SERVICE_ENGINE_H_
#define MUSTER_COORDINATOR_SERVICE_ENGINE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/steady/condition.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/store/store.h"

namespace muster::service {

// The store cannot be written at present.
struct StoreTrouble {
  std::string message;
  absl::Time since;
};

// UNAVAILABLE STORE_TROUBLE, for whoever cannot be served meanwhile.
absl::Status RefusalOf(const StoreTrouble& trouble);

struct EngineOptions {
  cluster::Options cluster;
  // Never goes back.
  std::function<absl::Time()> clock;
  // Lets one effect out. Runs on the engine's thread.
  std::function<void(const cluster::Effect&)> out;
  // The store's data is damaged. Runs once, on the engine's thread.
  std::function<void(const absl::Status&)> on_failure;
  // The store is in trouble, or (absent) well again. Runs on the engine's thread; may be null.
  std::function<void(const std::optional<StoreTrouble>&)> on_trouble;
};

class Engine {
 public:
  // Loads the cluster. `store` outlives the engine. Errors: the store's.
  static absl::StatusOr<std::unique_ptr<Engine>> Start(EngineOptions options, store::Store* store);
  // Stops.
  ~Engine();

  // Changes the cluster; may be null. Not called once the store is damaged or the engine was
  // stopped.
  using Apply = std::function<void(cluster::Cluster&, absl::Time)>;
  // What was applied is durable, or UNAVAILABLE. Always called exactly once (may be null).
  using Done = std::function<void(const absl::Status&)>;

  // What happened: waits for the store where that is in trouble.
  void Post(Apply apply, Done done);
  // What a client wants changed: UNAVAILABLE STORE_TROUBLE at once while the store is in trouble.
  void Request(Apply apply, Done done);
  // The same of a deletion, which makes room: it is also applied while the disk is full.
  void RequestRoom(Apply apply, Done done);
  // For answers from cluster() and store(): UNAVAILABLE STORE_TROUBLE at once while a commit is
  // held.
  void Read(Done done);
  // At any time, in its order among its like, before all that waits in the queue: a heartbeat, or
  // what has to do with streams and not with the cluster's state. It may look at what is not
  // committed yet, and may change only what is not durable. The time is that of the call.
  void Aside(Apply apply);

  // Ends the threads; what is posted from now on is answered with UNAVAILABLE at once. A commit
  // that is held is tried once more. Not from the engine's thread.
  void Stop();

  // ---- Only on the engine's thread, in Done or in an effect: what is committed.
  const cluster::Cluster& cluster() const { return *cluster_; }
  store::Store& store() { return *store_; }
  // Also in Aside. Absent: the store is well.
  const std::optional<StoreTrouble>& trouble() const { return trouble_; }

 private:
  enum class Kind { kEvent, kRequest, kRoom, kRead };
  struct Task {
    Kind kind = Kind::kEvent;
    Apply apply;
    Done done;
  };
  struct Beat {
    Apply apply;
    absl::Time posted;
  };
  // A batch on its way into the store, and what waits for it.
  struct Commit {
    store::Batch batch;
    std::vector<cluster::Effect> effects;
    std::vector<Task> tasks;
    absl::Time begun = absl::InfinitePast();
    // With the committer; else it is held, and is tried again at next_try.
    bool under_way = false;
    absl::Time next_try = absl::InfinitePast();
    absl::Duration back_off = absl::ZeroDuration();
    // It failed, or takes long: nobody is to wait for it who does not have to.
    bool held = false;
    // Tried once more because the engine is to stop.
    bool last_try = false;
  };

  Engine(EngineOptions options, store::Store* store, std::unique_ptr<cluster::Cluster> cluster);
  void Enqueue(Task task);
  bool Woken() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasResult() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return committed_.has_value(); }
  bool CommitterWoken() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return to_commit_ != nullptr || ended_;
  }
  void Loop();
  void CommitLoop();

  // ---- Of the engine's thread.
  absl::Time NextWake(absl::Time now) const;
  // Applies what may be applied now, and begins its commit.
  void Work(absl::Time now);
  bool Admits(const Task& task) const;
  void HandToCommitter();
  void TakeResult(const absl::Status& committed);
  // Tries again what is held, where it is time.
  void LookAfterCommit(absl::Time now, bool stopping);
  // Gets the store's reserve back, where there is room again.
  void LookForRoom(absl::Time now);
  void BeInTrouble(const std::string& message);
  void BeWell();
  // Answers those who must not wait.
  void RefuseWhoDoesNotWait();
  void Fail(const absl::Status& status);

  const EngineOptions options_;
  store::Store* const store_;

  std::unique_ptr<cluster::Cluster> cluster_;
  absl::Status failure_;
  absl::Time next_tick_;
  absl::Time last_wake_;
  std::vector<Task> waiting_;
  std::optional<Commit> commit_;
  std::optional<StoreTrouble> trouble_;
  // The store's reserve was given up, and there is no room to have it back.
  bool short_of_room_ = false;
  absl::Time next_look_for_room_;

  absl::Mutex mutex_;
  // What Woken looks at.
  SteadyCondition woken_;
  std::vector<Task> queue_ ABSL_GUARDED_BY(mutex_);
  std::vector<Beat> aside_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // For the committer, and back.
  const store::Batch* to_commit_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::optional<absl::Status> committed_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread committer_;
  std::thread thread_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_ENGINE_H_
