// Commits batches on a thread of its own, so that a slow disk holds up nobody else.
#ifndef MUSTER_COORDINATOR_SERVICE_COMMITTER_H_
#define MUSTER_COORDINATOR_SERVICE_COMMITTER_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/store/store.h"

namespace muster::service {

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

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_COMMITTER_H_
