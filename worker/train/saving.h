// A session's checkpoints: what goes into one of them, and what becomes of one that cannot be
// written. checkpoints.h says where they lie.
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
#include "worker/train/standing.h"
#include "worker/train/trained_parameters.h"

namespace muster::train {

enum class SaveKind {
  kOnTheWay,
  kAtStop,  // this one, and the next, are tried up to three times
  kFinal,   // at the end of training
};

struct SaveResult {
  // Where they failed, which is reported: that is no error of the session.
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
    const Standing* standing;
    const SessionReports* reports;
    // What trains; both are asked anew for each checkpoint, because a change of what is trained
    // makes others.
    std::function<parallel::Strategy&()> strategy;
    std::function<checkpoint::State()> state;
  };
  explicit Saving(Parts parts) : parts_(std::move(parts)) {}

  // Unless there is one of this step. A collective; the roll call before it has said that the
  // losses are finite on every rank. Errors: the communicator's; OUT_OF_RANGE, a parameter or
  // buffer that is not finite; UNAVAILABLE, the lease is over; DATA_LOSS, the ranks' parameters
  // differ.
  absl::StatusOr<SaveResult> Save(SaveKind kind);

  // The newest one that was written or gone on from.
  const std::optional<CheckpointWritten>& newest() const { return newest_; }
  void GoOnFrom(const Checkpoints::Restored& restored);

 private:
  checkpoint::SavePoint Point() const;

  const Parts parts_;
  std::optional<CheckpointWritten> newest_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVING_H_
