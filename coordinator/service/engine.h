// The one place where the coordinator's state changes: a thread that takes what happened from a
// queue, applies all of it to the cluster, commits what changed in one transaction, and only then
// lets effects and answers out.
//
// Crash only: when a commit fails, everything that waited for it is answered with UNAVAILABLE,
// nothing is applied any more, and `on_failure` is told; the daemon ends, and the next one carries
// on from the store.
//
// Life cycle: Start, then Post from any thread; the destructor stops. Functions given to Post run
// on the engine's thread, without any lock held, so they may call gRPC.
#ifndef MUSTER_COORDINATOR_SERVICE_ENGINE_H_
#define MUSTER_COORDINATOR_SERVICE_ENGINE_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/store/store.h"

namespace muster::service {

struct EngineOptions {
  cluster::Options cluster;
  // Never goes back.
  std::function<absl::Time()> clock;
  // Lets one effect out. Runs on the engine's thread.
  std::function<void(const cluster::Effect&)> out;
  // The store failed. Runs once, on the engine's thread.
  std::function<void(const absl::Status&)> on_failure;
};

class Engine {
 public:
  // Loads the cluster. `store` outlives the engine. Errors: the store's.
  static absl::StatusOr<std::unique_ptr<Engine>> Start(EngineOptions options, store::Store* store);
  // Stops.
  ~Engine();

  // Changes the cluster; may be null. Not called once the store has failed or the engine was
  // stopped.
  using Apply = std::function<void(cluster::Cluster&, absl::Time)>;
  // What was applied is durable, or UNAVAILABLE. Always called exactly once (may be null).
  using Done = std::function<void(const absl::Status&)>;
  void Post(Apply apply, Done done);

  // Ends the thread; what is posted from now on is answered with UNAVAILABLE at once. Not from the
  // engine's thread.
  void Stop();

  // ---- Only on the engine's thread, in Done or in an effect: what is committed.
  const cluster::Cluster& cluster() const { return *cluster_; }
  store::Store& store() { return *store_; }

 private:
  struct Task {
    Apply apply;
    Done done;
  };

  Engine(EngineOptions options, store::Store* store, std::unique_ptr<cluster::Cluster> cluster);
  void Loop();
  bool QueueReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !queue_.empty();
  }
  void Fail(const absl::Status& status);
  void Work(std::vector<Task> tasks);

  const EngineOptions options_;
  store::Store* const store_;

  // ---- Of the engine's thread.
  std::unique_ptr<cluster::Cluster> cluster_;
  absl::Status failure_;
  absl::Time next_tick_;

  absl::Mutex mutex_;
  std::vector<Task> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_ENGINE_H_
