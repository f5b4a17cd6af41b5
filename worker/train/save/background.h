// Work that goes on while training continues, on a thread of its own: writing a checkpoint, or the
// file of an optimizer's state. One task at a time, because a task holds a copy of the state.
//
// All ranks start the same tasks in the same order. A task uses a communicator that no other thread
// uses meanwhile, so its collectives have a fixed order although that between them and those of
// training is not fixed.
#ifndef MUSTER_WORKER_TRAIN_SAVE_BACKGROUND_H_
#define MUSTER_WORKER_TRAIN_SAVE_BACKGROUND_H_

#include <cstdint>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/communicator.h"
#include "worker/train/reports/session_reports.h"

namespace muster::train {

// A collective: the number of ranks that share this rank's memory.
absl::StatusOr<uint64_t> RanksOfNode(comm::Communicator& communicator);

// Threading: the session's thread, except for failure().
class Background {
 public:
  // Its error ends the session.
  using Task = std::function<absl::Status()>;

  // Both outlive it. communicator: the one that tasks use. ranks_of_node: RanksOfNode().
  Background(comm::Communicator* communicator, const SessionReports* reports,
             uint64_t ranks_of_node = 1)
      : communicator_(communicator), reports_(reports), ranks_of_node_(ranks_of_node) {}

  uint64_t ranks_of_node() const { return ranks_of_node_; }
  // If a task is running, the session ends with an error: aborts the communicator, because the
  // other ranks may not have started the task, and waits for the thread.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // A copy of what this rank writes of `state` (checkpoint::Snapshot), for a task. An error if
  // there is no room for the copies of all ranks of this node; then the rank should carry the task
  // out itself (Skip), which the other ranks do not notice.
  absl::StatusOr<checkpoint::State> Copy(const checkpoint::State& state);
  // Runs `task` on its own thread; its activity counts as this thread's. Await has returned OK
  // since the last Start. Returns the number of the task, from 1 and the same on all ranks.
  uint64_t Start(Task task);
  // Takes the number of a task that this rank carries out on the session's thread instead.
  uint64_t Skip() { return ++newest_; }
  // The number of the newest task. Those before it have ended.
  uint64_t newest() const { return newest_; }
  // Waits until no task is running. The error of a task, from then on; a rank that waits for longer
  // than the job's limits for progress is found by the watchdog.
  absl::Status Await();
  // The error of a task that has ended. Costs little enough for each step.
  absl::Status failure() const;

 private:
  bool running() const;

  comm::Communicator* const communicator_;
  const SessionReports* const reports_;
  const uint64_t ranks_of_node_;
  std::thread thread_;
  uint64_t newest_ = 0;
  // Bytes of the largest copy: the allocator keeps its memory, so another one needs no more.
  uint64_t copied_ = 0;
  mutable absl::Mutex mutex_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVE_BACKGROUND_H_
