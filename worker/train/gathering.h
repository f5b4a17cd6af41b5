// Writing the optimizer's state of all ranks to a file, while training continues or while it waits.
#ifndef MUSTER_WORKER_TRAIN_GATHERING_H_
#define MUSTER_WORKER_TRAIN_GATHERING_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/state.h"
#include "worker/checkpoint/writing.h"
#include "worker/comm/communicator.h"
#include "worker/optim/schedule.h"
#include "worker/train/background.h"
#include "worker/train/job.h"
#include "worker/train/outside.h"
#include "worker/train/session_reports.h"
#include "worker/train/session_state.h"

namespace muster::train {

// Threading: the session's thread.
class Gathering {
 public:
  // All outlive it.
  struct Parts {
    Identity identity;
    const LeaseHolder* lease;  // null: no other process can replace this one
    const optim::Schedule* learning_rates;
    const SessionState* session_state;
    const SessionReports* reports;
    comm::Communicator* communicator;  // the background's
    Background* background;
    checkpoint::Writing* writing;
    // Return the state in use, and what a file says about its parameters.
    std::function<checkpoint::State()> state;
    std::function<absl::StatusOr<checkpoint::ModelRecords>(const checkpoint::State&)> records;
  };
  explicit Gathering(Parts parts) : parts_(std::move(parts)) {}

  // The file, or why it was not written: no error of the session.
  using Told = std::function<void(const absl::StatusOr<OptimizerStateGathered>& gathered)>;

  // A collective. Waits until the files before it are written, copies what this rank writes, and
  // returns; the file is written in the background. With `hold` nothing is copied, and it returns
  // when the file is written. `told` hears how it ended, on the thread that wrote. Errors: those of
  // the communicator. What ends the session meanwhile is the background's error.
  absl::Status Gather(const GatherOptimizerStateCommand& gather, int64_t command, Told told);

  // Cancels the gather of this command, and waits for its end. False: its file is written, it
  // failed, or it was never begun in this session. The same on all ranks.
  absl::StatusOr<bool> Cancel(int64_t command);
  // Stops a gather that is under way, and tells nobody of its end: the next generation carries it
  // out. The job leaves its nodes, which must not wait for a large file.
  absl::Status LeaveToNextGeneration();
  // Rank 0 removes what earlier generations left beside `path`.
  void RemoveLeftovers(const std::string& path) const;

 private:
  struct Task;
  absl::Status Write(const Task& task);

  const Parts parts_;
  int64_t command_ = 0;                  // the newest one
  uint64_t task_ = 0;                    // the background's
  std::atomic<bool> cancelled_ = false;  // nobody needs its file any more
  std::atomic<bool> left_ = false;       // it is cancelled, but its command is not
  // How the newest one ended. Used by the background's task while one runs.
  absl::Status end_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_GATHERING_H_
