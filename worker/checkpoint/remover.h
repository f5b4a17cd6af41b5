// Removes checkpoints that no longer count, in the background, so that a slow file system delays
// neither the control stream nor training.
//
// Remove adds names, from any thread. The names wait until Begin, because a session must first find
// the checkpoint from which it starts. Only names of complete checkpoints in the folder are
// accepted, and the folder's epoch is read before each removal. Threading: thread-safe; callbacks
// run without a lock. The callbacks of removals run on the remover's own thread.
#ifndef MUSTER_WORKER_CHECKPOINT_REMOVER_H_
#define MUSTER_WORKER_CHECKPOINT_REMOVER_H_

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/steady/condition.h"
#include "worker/checkpoint/epoch.h"

namespace muster::checkpoint {

class Remover {
 public:
  // The largest number of names that wait; further names are ignored until they are named again.
  static constexpr size_t kMostWaiting = 1024;

  struct Options {
    // The checkpoints `names` were removed, or did not exist.
    std::function<void(const std::vector<std::string>& names)> on_removed;
    // A name was refused, or a removal failed.
    std::function<void(const absl::Status&)> on_error;
  };

  explicit Remover(Options options);
  // Stops.
  ~Remover();

  void Remove(const std::vector<std::string>& names);
  void Begin(const std::string& folder, const Epoch& epoch);
  // Waits for the removal that is in progress. The other names are dropped, because the coordinator
  // sends them again. Afterwards nothing is removed and no callback is called.
  void Stop();
  // Waits until nothing is left to remove. False after `timeout`.
  bool Drain(absl::Duration timeout);

 private:
  void Loop();
  // Removes one checkpoint. False: the folder belongs to another generation, so no further removal
  // is allowed.
  bool RemoveOne(const std::string& name);

  const Options options_;
  absl::Mutex mutex_;
  // Signalled when there may be nothing left to remove.
  SteadyCondition idle_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::string> waiting_ ABSL_GUARDED_BY(mutex_);
  // Set before begun_, and not changed afterwards.
  std::string folder_;
  Epoch epoch_;
  std::thread thread_;
};

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_REMOVER_H_
