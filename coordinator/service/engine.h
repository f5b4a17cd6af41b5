// The only place where the coordinator's state changes. A thread takes events from a queue, applies
// all of them to the cluster, has the changes committed in one transaction, and only then carries
// out effects and gives answers.
//
// A second thread commits, so that a disk that is slow or returns errors delays only what must be
// durable:
// - Heartbeats do not wait in the queue. They are applied at once, each with the time of its
//   arrival, even while a commit is in progress or is tried again.
// - A commit that fails is held back together with its effects, and tried again until it succeeds;
//   nothing else is applied during this time. Reports of peers wait. Calls of clients are answered
//   with UNAVAILABLE STORE_TROUBLE at once. A call that was already applied still takes effect when
//   the disk works again, so the caller repeats it with the same request id.
// - Streams of agents and workers that have not attached yet would have to wait with their hello.
//   They are ended with UNAVAILABLE STORE_TROUBLE: for the peer this is an answer, so it keeps its
//   lease and tries again. When the store works again, every peer without a stream gets a new
//   lease.
// - When the disk is full, the store's reserve is freed for the commit that failed. Until the store
//   has its reserve again, only deletions are applied, and reads are answered. The engine starts in
//   this state if the disk was too full for a reserve when the store was opened.
// - If the store's data is damaged (DATA_LOSS), the engine stops working: everything is answered
//   with UNAVAILABLE, and `on_failure` is called.
//
// Reads show only what is committed: while a commit is held back, reads of jobs are refused, too.
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
#include "coordinator/cluster/cluster.h"
#include "coordinator/jobs/job.h"
#include "coordinator/service/engine_inbox.h"
#include "coordinator/store/store.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::service {

// The store cannot be written at present.
struct StoreTrouble {
  std::string message;
  absl::Time since;
};

// UNAVAILABLE STORE_TROUBLE, for calls and streams that cannot be served while the store is in
// trouble.
absl::Status RefusalOf(const StoreTrouble& trouble);

// Sets the fields of a plan that are not stored: they follow from the job file, with its defaults.
void SetUnstored(const v1::JobSpec& spec, jobs::Plan* plan);

struct EngineOptions {
  cluster::Options cluster;
  // Never goes back.
  std::function<absl::Time()> clock;
  // Carries out one effect. Runs on the engine's thread.
  std::function<void(const cluster::Effect&)> out;
  // The store's data is damaged. Runs once, on the engine's thread.
  std::function<void(const absl::Status&)> on_failure;
  // The store is in trouble, or (absent) works again. Runs on the engine's thread; may be null.
  std::function<void(const std::optional<StoreTrouble>&)> on_trouble;
  // Called several times in a lease, on the engine's thread, whatever the store does; may be null.
  std::function<void(absl::Time now)> on_wake;
};

// Commits batches on a thread of its own, so that a slow disk holds up nobody else.
class Committer {
 public:
  // `store` outlives the committer. `done` gets the result of each commit, on the thread.
  Committer(store::Store* store, std::function<void(absl::Status)> done);
  // A batch that was handed over is committed before the thread ends.
  ~Committer();

  // `batch` lives until `done` is called; only then another one may be handed over.
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
  // Stops.
  ~Engine();

  // Changes the cluster; may be null. Not called once the store is damaged or the engine was
  // stopped.
  using Apply = EngineInbox::Apply;
  // Called exactly once: with OK when the change is durable, otherwise with UNAVAILABLE. May be
  // null.
  using Done = EngineInbox::Done;

  // An event: it waits while the store is in trouble.
  void Post(Apply apply, Done done);
  // A change that a client asks for: UNAVAILABLE STORE_TROUBLE at once while the store is in
  // trouble.
  void Request(Apply apply, Done done);
  // Like Request, for a deletion: because it makes room, it is also applied while the disk is full.
  void RequestRoom(Apply apply, Done done);
  // For answers from cluster() and store(): UNAVAILABLE STORE_TROUBLE at once while a commit is
  // held.
  void Read(Done done);
  // Runs before everything that waits in the queue, also while a commit is in progress; several of
  // them run in their order. For heartbeats, and for work on streams that does not concern the
  // cluster's state. `apply` may read what is not committed yet, and may change only what is not
  // durable. It gets the time of this call.
  void Aside(Apply apply);

  // Ends the threads; everything that is posted later is answered with UNAVAILABLE at once. A
  // commit that is held back is tried once more. Must not be called on the engine's thread.
  void Stop();

  // ---- Only on the engine's thread, in Done or in an effect: what is committed.
  const cluster::Cluster& cluster() const { return *cluster_; }
  store::Store& store() { return *store_; }
  // May also be called in Aside. Absent: the store works.
  const std::optional<StoreTrouble>& trouble() const { return trouble_; }

 private:
  using Kind = EngineInbox::Kind;
  using Task = EngineInbox::Task;
  // A batch on its way into the store, and what waits for it.
  struct Commit {
    store::Batch batch;
    std::vector<cluster::Effect> effects;
    std::vector<Task> tasks;
    absl::Time begun = absl::InfinitePast();
    // The committer has it; otherwise it is held back and tried again at next_try.
    bool under_way = false;
    absl::Time next_try = absl::InfinitePast();
    absl::Duration back_off = absl::ZeroDuration();
    // It failed or takes long: callers that need not wait for it get an error.
    bool held = false;
    // It is tried once more because the engine should stop.
    bool last_try = false;
  };

  Engine(EngineOptions options, store::Store* store, std::unique_ptr<cluster::Cluster> cluster);

  // ---- Of the engine's thread.
  void Loop();
  absl::Time NextWake(absl::Time now) const;
  // Applies what may be applied now, and begins its commit.
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
  // The store's reserve was freed, and there is no room to restore it.
  bool short_of_room_ = false;
  absl::Time next_look_for_room_;

  EngineInbox inbox_;
  Committer committer_;
  std::thread thread_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_ENGINE_H_
