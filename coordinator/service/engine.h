// The engine, the only place where the coordinator's state changes. A thread takes events from a
// queue and applies all of them to the cluster. One transaction commits the changes. Only then the
// thread carries out effects and gives answers.
//
// A second thread commits, so that a disk that is slow or returns errors delays only what must be
// durable:
// - Heartbeats do not wait in the queue. Each is applied at once, with the time of its arrival,
//   even while a commit is in progress or is tried again.
// - A commit that fails is held back together with its effects, and tried again until it succeeds.
//   During this time nothing else is applied. Reports of peers wait. Calls of clients are answered
//   with UNAVAILABLE STORE_TROUBLE at once. A call that was already applied takes effect when the
//   disk works again. Its caller repeats the call with the same request id.
// - Streams of agents and workers that have not attached yet are ended with UNAVAILABLE
//   STORE_TROUBLE, because their hello would have to wait. For the peer this is an answer, so it
//   keeps its lease and tries again. When the store works again, every peer without a stream gets a
//   new lease.
// - When the disk is full, the store's reserve is freed for the commit that failed. Until the store
//   has its reserve again, only deletions are applied, and reads are answered. The engine starts in
//   this state if the disk was too full for a reserve when the store was opened.
// - When the store's data is damaged (DATA_LOSS), the engine stops working. It answers everything
//   with UNAVAILABLE and calls `on_failure`.
//
// Reads show only committed data: while a commit is held back, reads of jobs are refused, too.
//
// Life cycle: Start, then Post from any thread; the destructor stops. Functions given to Post run
// on the engine's thread without any lock, so they may call gRPC.
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
#include "coordinator/cluster/cluster.h"
#include "coordinator/jobs/job.h"
#include "coordinator/service/engine_inbox.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::service {

// The trouble of a store that cannot be written at present.
struct StoreTrouble {
  std::string message;
  absl::Time since;
};

// Returns UNAVAILABLE STORE_TROUBLE, for calls and streams that cannot be served while the store is
// in trouble.
absl::Status RefusalOf(const StoreTrouble& trouble);

// Sets the fields of a plan that are not stored, from the job file with its defaults.
void SetUnstored(const v1::JobSpec& spec, jobs::Plan* plan);

struct EngineOptions {
  cluster::Options cluster;
  // The clock, which never goes back.
  std::function<absl::Time()> clock;
  // Carries out one effect. Runs on the engine's thread.
  std::function<void(const cluster::Effect&)> out;
  // Handles damage of the store's data. Runs once, on the engine's thread.
  std::function<void(const absl::Status&)> on_failure;
  // Gets the store's trouble, or nothing when the store works again. Runs on the engine's thread;
  // may be null.
  std::function<void(const std::optional<StoreTrouble>&)> on_trouble;
  // Runs several times per lease, on the engine's thread, also while the store is in trouble; may
  // be null.
  std::function<void(absl::Time now)> on_wake;
};

// A thread that commits batches, so that a slow disk delays no other thread.
class Committer {
 public:
  // `store` outlives the committer. `done` gets the result of each commit, on the committer's
  // thread.
  Committer(store::Store* store, std::function<void(absl::Status)> done);
  // Ends the thread after the commit of a batch that was handed over.
  ~Committer();

  // Hands over a batch. `batch` lives until `done` is called. Only then another batch may be handed
  // over.
  void Commit(const store::Batch& batch);

 private:
  void Run();
  bool Woken() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return batch_ != nullptr || ended_; }

  store::Store* const store_;
  const std::function<void(absl::Status)> done_;
  absl::Mutex mutex_;
  const store::Batch* batch_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

class Engine {
 public:
  // Loads the cluster. `store` outlives the engine. Errors: the store's.
  static absl::StatusOr<std::unique_ptr<Engine>> Start(EngineOptions options, store::Store* store);
  // Stops the engine.
  ~Engine();

  // A function that changes the cluster; may be null. It is not called after the store is damaged
  // or the engine was stopped.
  using Apply = EngineInbox::Apply;
  // A function that is called exactly once: with OK when the change is durable, otherwise with
  // UNAVAILABLE. May be null.
  using Done = EngineInbox::Done;

  // Posts an event, which waits while the store is in trouble.
  void Post(Apply apply, Done done);
  // Posts a change that a client asks for. UNAVAILABLE STORE_TROUBLE at once while the store is in
  // trouble.
  void Request(Apply apply, Done done);
  // Posts a deletion. Like Request, but also applied while the disk is full, because a deletion
  // makes room.
  void RequestRoom(Apply apply, Done done);
  // Posts a read of cluster() and store(). UNAVAILABLE STORE_TROUBLE at once while a commit is held
  // back.
  void Read(Done done);
  // Runs `apply` before everything that waits in the queue, also while a commit is in progress.
  // Several of them run in their order. For heartbeats, and for work on streams that does not
  // concern the cluster's state. `apply` may read uncommitted state, may change only what is not
  // durable, and gets the time of this call.
  void Aside(Apply apply);

  // Ends the threads. Everything posted later is answered with UNAVAILABLE at once. A commit that
  // is held back is tried once more. Must not be called on the engine's thread.
  void Stop();

  // ---- The committed state. Only on the engine's thread, in Done or in an effect.
  const cluster::Cluster& cluster() const { return *cluster_; }
  store::Store& store() { return *store_; }
  // The store's trouble; absent if the store works. May also be called in Aside.
  const std::optional<StoreTrouble>& trouble() const { return trouble_; }

 private:
  using Kind = EngineInbox::Kind;
  using Task = EngineInbox::Task;
  // A batch on its way into the store, with the effects and tasks that wait for it.
  struct Commit {
    store::Batch batch;
    std::vector<cluster::Effect> effects;
    std::vector<Task> tasks;
    absl::Time begun = absl::InfinitePast();
    // Whether the committer has the batch. If not, it is held back and tried again at next_try.
    bool under_way = false;
    absl::Time next_try = absl::InfinitePast();
    absl::Duration back_off = absl::ZeroDuration();
    // Whether the commit failed or takes long. Then callers that need not wait for it get an error.
    bool held = false;
    // Whether the commit is tried once more because the engine stops.
    bool last_try = false;
  };

  Engine(EngineOptions options, store::Store* store, std::unique_ptr<cluster::Cluster> cluster);

  // ---- Used on the engine's thread only.
  void Loop();
  absl::Time NextWake(absl::Time now) const;
  // Applies the tasks that may be applied at `now`, and begins their commit.
  void Work(absl::Time now);
  bool Admits(const Task& task) const;
  void HandToCommitter();
  void TakeResult(const absl::Status& committed);
  // Tries a held commit again when its time has come.
  void LookAfterCommit(absl::Time now, bool stopping);
  // Restores the store's reserve if there is room again.
  void LookForRoom(absl::Time now);
  void BeInTrouble(const std::string& message);
  void BeWell();
  // Answers the callers that must not wait, with the store's trouble.
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
  // Whether the store's reserve was freed, and there is no room to restore it.
  bool short_of_room_ = false;
  absl::Time next_look_for_room_;

  EngineInbox inbox_;
  Committer committer_;
  std::thread thread_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_ENGINE_H_
