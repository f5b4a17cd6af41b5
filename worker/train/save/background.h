// Runs work on a thread of its own while training continues: writing a checkpoint, or the file of
// an optimizer's state. One task at a time, because a task holds a copy of the state.
//
// All ranks start the same tasks in the same order. While a task runs, no other thread uses its
// communicator. So the order of the task's collectives is the same on all ranks. The order between
// these collectives and those of training may differ.
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

// Returns the number of ranks that share this rank's memory. A collective.
absl::StatusOr<uint64_t> RanksOfNode(comm::Communicator& communicator);

// Threading: the session's thread, except for failure().
class Background {
 public:
  // A task. Its error ends the session.
  using Task = std::function<absl::Status()>;

  // Both pointers must outlive this object. communicator: the tasks' communicator. ranks_of_node:
  // the result of RanksOfNode().
  Background(comm::Communicator* communicator, const SessionReports* reports,
             uint64_t ranks_of_node = 1)
      : communicator_(communicator), reports_(reports), ranks_of_node_(ranks_of_node) {}

  uint64_t ranks_of_node() const { return ranks_of_node_; }
  // Called while a task runs only if the session ends with an error. Then aborts the communicator,
  // because the other ranks may not have started the task, and waits for the thread.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Returns a copy of the part of `state` that this rank writes (checkpoint::Snapshot), for a task.
  // RESOURCE_EXHAUSTED if there is no memory for the copies of all ranks of this node. Then the
  // rank carries out the task itself (Skip), and the other ranks do not notice.
  absl::StatusOr<checkpoint::State> Copy(const checkpoint::State& state);
  // Runs `task` on its own thread. The activity of the task counts as this thread's. Await must
  // have returned OK since the last Start. Returns the number of the task, from 1 and the same on
  // all ranks.
  uint64_t Start(Task task);
  // Returns the number of a task that this rank carries out on the session's thread instead.
  uint64_t Skip() { return ++newest_; }
  // The number of the newest task. All earlier tasks have ended.
  uint64_t newest() const { return newest_; }
  // Waits until no task is running. Returns the error of a task, also in all later calls. The
  // watchdog finds a rank that waits for longer than the job's limits for progress.
  absl::Status Await();
  // Returns the error of a task that has ended. Fast enough for each step.
  absl::Status failure() const;

 private:
  bool running() const;

  comm::Communicator* const communicator_;
  const SessionReports* const reports_;
  const uint64_t ranks_of_node_;
  std::thread thread_;
  uint64_t newest_ = 0;
  // The bytes of the largest copy. The allocator keeps this memory for later copies.
  uint64_t copied_ = 0;
  mutable absl::Mutex mutex_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVE_BACKGROUND_H_
