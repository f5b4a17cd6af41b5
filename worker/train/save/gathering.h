// Writes the state of all ranks to files for users, while training continues or waits: the
// optimizer's state, the folder of a model, the weights. Each rank writes its own ranges
// (checkpoint/write_together.h), so that the whole state is never in one rank's memory.
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
#include "worker/train/reports/coordinator_interface.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/save/background.h"
#include "worker/train/save/live_state.h"

namespace muster::train {

// The interface through which commands write the state of all ranks to files.
class Gatherer {
 public:
  virtual ~Gatherer() = default;

  // Called at most once, with the result or the error. The error does not end the session.
  using Told = std::function<void(const absl::StatusOr<OptimizerStateGathered>& gathered)>;
  using ToldOfModel = std::function<void(const absl::StatusOr<ModelConsolidated>& consolidated)>;

  // Gather and Consolidate are collectives. They wait for earlier files, copy the part of this
  // rank, and return; the files are written in the background. With `hold` they copy nothing and
  // return after the files are written. `told` gets the end, on the thread that wrote the files. A
  // file for a client has no path if rank 0's node has no folder for it. Errors: those of the
  // communicator and of StateSource::AwaitWeights. A later error that ends the session is the
  // background's.
  virtual absl::Status Gather(const v1::OptimizerStateFile& file, int64_t command, Told told) = 0;
  virtual absl::Status Consolidate(const v1::ModelFolder& folder, int64_t command,
                                   ToldOfModel told) = 0;

  // Cancels the output of this command, waits for its end, and reports it. Returns false if the
  // output is complete, has failed, or did not begin in this session. The same on all ranks.
  virtual absl::StatusOr<bool> Cancel(int64_t command) = 0;
  // Stops the current output without a report of its end: the next generation carries it out.
  // Called when the job leaves its nodes, which must not wait for a large file.
  virtual absl::Status LeaveToNextGeneration() = 0;
  // Removes, on rank 0, the temporary files of earlier generations in the folder of `path`.
  virtual void RemoveLeftovers(const std::string& path) const = 0;
};

// Threading: the session's thread.
class Gathering : public Gatherer {
 public:
  // All must outlive this object.
  struct Dependencies {
    Identity identity;
    exports::Inputs inputs = {};  // files that are never replaced
    const LeaseHolder* lease;     // null: no other process can replace this one
    const optim::Schedule* learning_rates;
    const SessionState* session_state;
    const SessionReports* reports;
    comm::Communicator* communicator;  // the background's communicator
    Background* background;
    checkpoint::Writing* writing;
    files::Disk* disk;  // reports progress to `writing`
    StateSource* source;
  };
  explicit Gathering(Dependencies deps) : deps_(std::move(deps)) {}

  absl::Status Gather(const v1::OptimizerStateFile& file, int64_t command, Told told) override;
  absl::Status Consolidate(const v1::ModelFolder& folder, int64_t command,
                           ToldOfModel told) override;
  // Replaces the file of the job's export with the weights, during training, in the same way as
  // Gather. A failure is reported.
  absl::Status Export(const ExportConfig& config);

  absl::StatusOr<bool> Cancel(int64_t command) override;
  absl::Status LeaveToNextGeneration() override;
  void RemoveLeftovers(const std::string& path) const override;

 private:
  struct Task;
  // The end of an output.
  struct Written {
    int64_t step = 0;
    uint64_t bytes = 0;
    double stall_seconds = 0;
    double seconds = 0;
  };
  absl::Status Begin(Task task, bool hold);
  absl::Status Write(const Task& task);
  // FAILED_PRECONDITION: the output would replace something that is never replaced.
  absl::Status CheckPlace(const Task& task) const;

  const Dependencies deps_;
  int64_t command_ = 0;                  // the newest command; 0: an export
  uint64_t task_ = 0;                    // its number in the background
  std::atomic<bool> cancelled_ = false;  // the file is not needed any more
  // The end of the newest output. While a task runs, only the background's thread uses it.
  absl::Status end_;
  // The function `told` of the newest output.
  std::function<void(const absl::StatusOr<Written>&)> told_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVE_GATHERING_H_
