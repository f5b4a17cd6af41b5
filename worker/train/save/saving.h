// Saves the checkpoints of a session, while training continues or while it waits, and handles
// failed saves. Related files:
// - checkpoints.h: the places of checkpoints;
// - DueAfter (job/stages.h): the steps at which a checkpoint is due;
// - TrainingState (training/setup.h): the tensors of a checkpoint, and the ranks that write them.
#ifndef MUSTER_WORKER_TRAIN_SAVE_SAVING_H_
#define MUSTER_WORKER_TRAIN_SAVE_SAVING_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/state.h"
#include "worker/checkpoint/writing.h"
#include "worker/comm/communicator.h"
#include "worker/train/reports/coordinator_interface.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/save/background.h"
#include "worker/train/save/checkpoints.h"
#include "worker/train/save/live_state.h"
#include "worker/train/schedule/command_schedule.h"
#include "worker/train/step/trained_parameters.h"

namespace muster::train {

// The interface through which commands save checkpoints, and a stage saves its last checkpoint.
// BestCheckpoint (session/best_checkpoint.h) implements this interface with Saving. Periodic saves
// call Saving directly (boundary.cc). checkpoint::Saver, in contrast, writes and reads the files.
// Methods of the same names have the same errors. All methods are collectives.
class Saver {
 public:
  virtual ~Saver() = default;

  // The checkpoint, or the error of its files, which was already reported and does not end the
  // session.
  using Saved = absl::StatusOr<CheckpointWritten>;
  // Called at most once, with the end of a save.
  using Told = std::function<void(const Saved& saved)>;

  // Saves, after which training continues. `command`: the command that asked for it; 0: none.
  virtual absl::Status Save(int64_t command, Told told) = 0;
  // Saves a checkpoint, after which training does not continue.
  virtual absl::StatusOr<Saved> SaveLast() = 0;
};

// Threading: the session's thread.
class Saving {
 public:
  // All must outlive this object.
  struct Dependencies {
    int rank;
    int64_t generation;
    double jobs_rate;     // the learning rate of the job file
    bool while_training;  // saves other than the last do not stop training
    Background* background;
    checkpoint::Writing* writing;
    Checkpoints* checkpoints;
    comm::Communicator* communicator;  // the background's communicator
    const TrainedParameters* trained;
    const CommandSchedule* commands;
    const Attempts* attempts;
    const SessionState* session_state;
    const SessionReports* reports;
    StateSource* source;
    // The checkpoint of the job from which the session starts; an empty path: none. Only the
    // constructor reads it.
    Checkpoints::Restored restored = {};
  };
  explicit Saving(Dependencies deps);

  using Saved = Saver::Saved;
  using Told = Saver::Told;

  // Save and SaveLast save a checkpoint unless this step has one. For the best step, a checkpoint
  // of an earlier session counts only if its manifest calls it the best. Both are collectives. The
  // roll call before has shown that the losses are finite on every rank. Errors: the
  // communicator's; OUT_OF_RANGE: a parameter or buffer is not finite (for a parameter this may be
  // the background's error); UNAVAILABLE: the lease is over; DATA_LOSS: the ranks' parameters
  // differ.

  // Saves in the background: copies the part of this rank and returns. First waits for earlier
  // files, even if this step already has a checkpoint: only then do all ranks know whether they
  // must save another. `told` gets the end, on the thread that wrote the files. A later error that
  // ends the session is the background's.
  absl::Status Save(int64_t command = 0, Told told = nullptr);
  // Saves before the session ends training, with up to three attempts. Returns after the end.
  absl::StatusOr<Saved> SaveLast();

  // Whether this step has a checkpoint. Called only while no background task runs.
  bool HasOneOf(int64_t step) const { return newest_.has_value() && newest_->step == step; }

 private:
  using Clock = std::chrono::steady_clock;
  // The contents of a checkpoint.
  struct Contents {
    checkpoint::SavePoint point;
    checkpoint::State state;
    checkpoint::ModelRecords records;
    int64_t command = 0;  // the command that asked for the save
    Clock::time_point begun;
    double stall_seconds = 0;  // the time that training waited; 0: until the end
  };

  checkpoint::SavePoint Point() const;
  // Whether this session's checkpoint of this step is the best checkpoint.
  bool IsBest(const checkpoint::SavePoint& point) const;
  // Waits for earlier files. Returns the contents; nullopt if this step has a checkpoint.
  absl::StatusOr<std::optional<Contents>> Prepare(int64_t command);
  // Writes the files. A collective of the background. OUT_OF_RANGE on all ranks if a parameter of
  // any rank is not finite. Checks the copies, if there are any, so that training does not wait for
  // the check.
  absl::StatusOr<Checkpoints::Saved> Write(const Contents& contents);
  // Records and reports the end of a save. An error ends the session.
  absl::StatusOr<Saved> Take(const Contents& contents, const Checkpoints::Saved& saved);

  const Dependencies deps_;
  // The newest checkpoint that this session wrote or started from. While a task runs, only the
  // background's thread uses it.
  std::optional<CheckpointWritten> newest_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVE_SAVING_H_
