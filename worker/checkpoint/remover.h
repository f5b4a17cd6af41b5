// Removes checkpoints that no longer count, in the background: a slow file system holds up neither
// the control stream nor training.
//
// Names come by Remove, from any thread, and wait until Begin: no session removes anything before
// it has found where it starts. Only names of whole checkpoints in the folder are taken, and the
// folder's epoch is read before each removal. Threading: thread-safe; the callbacks come under no
// lock, those of removals from the remover's own thread.
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
  // At most so many wait; more are left for the next time.
  static constexpr size_t kMostWaiting = 1024;

  struct Options {
    // They are gone, or were not there.
    std::function<void(const std::vector<std::string>& names)> on_removed;
    // A name that is refused, a removal that failed.
    std::function<void(const absl::Status&)> on_error;
  };

  explicit Remover(Options options);
  // Stops.
  ~Remover();

  void Remove(const std::vector<std::string>& names);
  void Begin(const std::string& folder, const Epoch& epoch);
  // Waits for the removal that is under way, not for the others: who named them names them again.
  // Nothing is removed, and nobody called, after it.
  void Stop();
  // Waits until nothing is left to remove. False after `timeout`.
  bool Drain(absl::Duration timeout);

 private:
  void Loop();
  // One of them; false: nothing is to be removed any more, the folder is another generation's.
  bool RemoveOne(const std::string& name);

  const Options options_;
  absl::Mutex mutex_;
  // That nothing is left to remove may have changed.
  SteadyCondition idle_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::string> waiting_ ABSL_GUARDED_BY(mutex_);
  // Set before begun_, and never after.
  std::string folder_;
  Epoch epoch_;
  std::thread thread_;
};

}  // namespace muster::checkpoint

#endif  // MUSTER_WORKER_CHECKPOINT_REMOVER_H_
