// Writing the state of all ranks to files for others than the job, while training continues or
// while it waits: the optimizer's state, the folder of a model, the weights.
#ifndef MUSTER_WORKER_TRAIN_SAVE_GATHERING_H_
#define MUSTER_WORKER_TRAIN_SAVE_GATHERING_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/exports/target.h"
#include "common/files/disk.h"
#include "worker/checkpoint/state.h"
#include "worker/checkpoint/write_together.h"
#include "worker/checkpoint/writing.h"
#include "worker/comm/communicator.h"
#include "worker/optim/schedule.h"
#include "worker/train/job/job.h"
#include "worker/train/reports/outside.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/save/background.h"

namespace muster::train {

// Threading: the session's thread.
class Gathering {
 public:
  // All outlive it.
  struct Parts {
    Identity identity;
    exports::Inputs inputs = {};  // files that are never replaced
    const LeaseHolder* lease;     // null: no other process can replace this one
    const optim::Schedule* learning_rates;
    const SessionState* session_state;
    const SessionReports* reports;
    comm::Communicator* communicator;  // the background's
    Background* background;
    checkpoint::Writing* writing;
    files::Disk* disk;  // tells `writing` what is written
    // Waits until the parameters are as they are after the last step, and checks that they are
    // finite and the same on all ranks.
    std::function<absl::Status()> await_weights;
    // Return the state in use, and what a file says about its parameters.
    std::function<checkpoint::State()> state;
    std::function<absl::StatusOr<checkpoint::ModelRecords>(const checkpoint::State&)> records;
  };
  explicit Gathering(Parts parts) : parts_(std::move(parts)) {}

  // The result, or why there is none: no error of the session.
  using Told = std::function<void(const absl::StatusOr<OptimizerStateGathered>& gathered)>;
  using ToldOfModel = std::function<void(const absl::StatusOr<ModelConsolidated>& consolidated)>;

  // All three are collectives. They wait until the files before are written, copy what this rank
  // writes, and return; the files are written in the background. With `hold` nothing is copied, and
  // they return when the files are written. `told` hears how it ended, on the thread that wrote.
  // Errors: those of the communicator, and of await_weights. What ends the session meanwhile is the
  // background's error.
  absl::Status Gather(const GatherOptimizerStateCommand& gather, int64_t command, Told told);
  absl::Status Consolidate(const ConsolidateCommand& consolidate, int64_t command,
                           ToldOfModel told);
  // The weights during training: replaces the file of the job's export. A failure is reported.
  absl::Status Export(const ExportConfig& config);

  // Cancels what was begun for this command, waits for its end, and tells it. False: it is
  // complete, it failed, or it was never begun in this session. The same on all ranks.
  absl::StatusOr<bool> Cancel(int64_t command);
  // Stops what is under way, and tells nobody of its end: the next generation carries it out. The
  // job leaves its nodes, which must not wait for a large file.
  absl::Status LeaveToNextGeneration();
  // Rank 0 removes what earlier generations left beside `path`.
  void RemoveLeftovers(const std::string& path) const;

 private:
  struct Task;
  // How an output ended.
  struct Written {
    int64_t step = 0;
    uint64_t bytes = 0;
    double stall_seconds = 0;
    double seconds = 0;
  };
  absl::Status Begin(Task task, bool hold);
  absl::Status Write(const Task& task);
  // Whether something is replaced that never is.
  absl::Status CheckPlace(const Task& task) const;

  const Parts parts_;
  int64_t command_ = 0;                  // the newest one; 0: an export
  uint64_t task_ = 0;                    // the background's
  std::atomic<bool> cancelled_ = false;  // nobody needs its file any more
  // How the newest one ended. Used by the background's task while one runs.
  absl::Status end_;
  std::function<void(const absl::StatusOr<Written>&)> told_;  // the newest one's
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVE_GATHERING_H_
