// Work that goes on while training continues, on a thread of its own: writing a checkpoint, or the
// file of an optimizer's state. One task at a time, because a task holds a copy of the state.
//
// All ranks start the same tasks in the same order. A task uses a communicator that no other thread
// uses meanwhile, so its collectives have a fixed order although that between them and those of
// training is not fixed.
#ifndef MUSTER_WORKER_TRAIN_BACKGROUND_H_
#define MUSTER_WORKER_TRAIN_BACKGROUND_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "worker/comm/communicator.h"
#include "worker/train/session_reports.h"

namespace muster::train {

// Threading: the session's thread, except for failure().
class Background {
 public:
  // Its error ends the session.
  using Task = std::function<absl::Status()>;

  // Both outlive it. communicator: the one that tasks use.
  Background(comm::Communicator* communicator, const SessionReports* reports)
      : communicator_(communicator), reports_(reports) {}
  // If a task is running, the session ends with an error: aborts the communicator, because the
  // other ranks may not have started the task, and waits for the thread.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Runs `task` on its own thread; its activity counts as this thread's. Await has returned OK
  // since the last Start.
  void Start(Task task);
  // Waits until no task is running. The error of a task, from then on; a rank that waits for longer
  // than the job's limits for progress is found by the watchdog.
  absl::Status Await();
  // The error of a task that has ended. Costs little enough for each step.
  absl::Status failure() const;

 private:
  comm::Communicator* const communicator_;
  const SessionReports* const reports_;
  std::thread thread_;
  mutable absl::Mutex mutex_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_BACKGROUND_H_
