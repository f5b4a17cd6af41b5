// A session's checkpoints: what one of them contains, and what happens if one cannot be written.
// checkpoints.h says where they are.
#ifndef MUSTER_WORKER_TRAIN_SAVING_H_
#define MUSTER_WORKER_TRAIN_SAVING_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/state.h"
#include "worker/parallel/strategy.h"
#include "worker/train/attempts.h"
#include "worker/train/checkpoints.h"
#include "worker/train/command_schedule.h"
#include "worker/train/finite.h"
#include "worker/train/outside.h"
#include "worker/train/session_reports.h"
#include "worker/train/session_state.h"
#include "worker/train/trained_parameters.h"

namespace muster::train {

enum class SaveKind {
  kOnTheWay,  // training continues after it
  kLast,      // the session trains no more after it; it is tried up to three times
};

struct SaveResult {
  // An error if the files could not be written. It is already reported, and it is no error of the
  // session.
  absl::Status files;
};

// Threading: the session's thread.
class Saving {
 public:
  // All outlive it.
  struct Parts {
    int64_t generation;
    double jobs_rate;  // the learning rate of the job file
    Checkpoints* checkpoints;
    const FiniteCheck* finite;
    const TrainedParameters* trained;
    const CommandSchedule* commands;
    const Attempts* attempts;
    const SessionState* session_state;
    const SessionReports* reports;
    // Return the strategy and the state in use. Both are called for each checkpoint, because a
    // change of the trained parameters replaces them.
    std::function<parallel::Strategy&()> strategy;
    // Waits until the parameters are as they are after the last step.
    std::function<absl::Status()> await_parameters;
    std::function<checkpoint::State()> state;
    // What the checkpoint says about the parameters of this state.
    std::function<absl::StatusOr<checkpoint::ModelRecords>(const checkpoint::State&)> records;
  };
  explicit Saving(Parts parts) : parts_(std::move(parts)) {}

  // Saves a checkpoint unless there is one of this step. A collective. The roll call before it has
  // shown that the losses are finite on every rank. Errors: the communicator's; OUT_OF_RANGE: a
  // parameter or buffer is not finite; UNAVAILABLE: the lease is over; DATA_LOSS: the ranks'
  // parameters differ.
  absl::StatusOr<SaveResult> Save(SaveKind kind);

  // The newest checkpoint that this session wrote or started from.
  const std::optional<CheckpointWritten>& newest() const { return newest_; }
  void ResumeFrom(const Checkpoints::Restored& restored);

 private:
  checkpoint::SavePoint Point() const;

  const Parts parts_;
  std::optional<CheckpointWritten> newest_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVING_H_
