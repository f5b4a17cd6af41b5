// Writing the state of all ranks to files for others than the job, while training continues or
// while it waits: the optimizer's state, the folder of a model, the weights. Each rank writes its
// own ranges (checkpoint/write_together.h): nothing whole is gathered in memory.
#ifndef MUSTER_WORKER_TRAIN_SAVE_GATHERING_H_
#define MUSTER_WORKER_TRAIN_SAVE_GATHERING_H_

#include <atomic>
#include <cstdint>
#include <functional>
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
#include "worker/train/save/live_state.h"

namespace muster::train {

// How commands write the state of all ranks to files for others than the job.
class Gatherer {
 public:
  virtual ~Gatherer() = default;

  // Called at most once, with the result, or with why there is none: no error of the session.
  using Told = std::function<void(const absl::StatusOr<OptimizerStateGathered>& gathered)>;
  using ToldOfModel = std::function<void(const absl::StatusOr<ModelConsolidated>& consolidated)>;

  // Both are collectives. They wait until the files before are written, copy what this rank writes,
  // and return; the files are written in the background. With `hold` nothing is copied, and they
  // return when the files are written. `told` hears how it ended, on the thread that wrote. Errors:
  // those of the communicator, and of StateSource::AwaitWeights. What ends the session meanwhile is
  // the background's error. A file for a client without a path has no folder on rank 0's node.
  virtual absl::Status Gather(const v1::OptimizerStateFile& file, int64_t command, Told told) = 0;
  virtual absl::Status Consolidate(const v1::ModelFolder& folder, int64_t command,
                                   ToldOfModel told) = 0;

  // Cancels what was begun for this command, waits for its end, and tells it. False: it is
  // complete, it failed, or it was never begun in this session. The same on all ranks.
  virtual absl::StatusOr<bool> Cancel(int64_t command) = 0;
  // Stops what is under way, and tells nobody of its end: the next generation carries it out. The
  // job leaves its nodes, which must not wait for a large file.
  virtual absl::Status LeaveToNextGeneration() = 0;
  // Rank 0 removes what earlier generations left beside `path`.
  virtual void RemoveLeftovers(const std::string& path) const = 0;
};

// Threading: the session's thread.
class Gathering : public Gatherer {
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
    StateSource* source;
  };
  explicit Gathering(Parts parts) : parts_(std::move(parts)) {}

  absl::Status Gather(const v1::OptimizerStateFile& file, int64_t command, Told told) override;
  absl::Status Consolidate(const v1::ModelFolder& folder, int64_t command,
                           ToldOfModel told) override;
  // The weights during training, in the same way: replaces the file of the job's export. A failure
  // is reported.
  absl::Status Export(const ExportConfig& config);

  absl::StatusOr<bool> Cancel(int64_t command) override;
  absl::Status LeaveToNextGeneration() override;
  void RemoveLeftovers(const std::string& path) const override;

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
