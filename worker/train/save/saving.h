// Saves a session's checkpoints: whether one is written while training continues, and what happens
// if it cannot be written. checkpoints.h says where they are, DueAfter (job/stages.h) when one is
// due, TrainingState (training/setup.h) which tensors it has and which rank writes what of them.
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
#include "worker/train/reports/outside.h"
#include "worker/train/reports/session_reports.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/save/background.h"
#include "worker/train/save/checkpoints.h"
#include "worker/train/save/live_state.h"
#include "worker/train/schedule/command_schedule.h"
#include "worker/train/step/trained_parameters.h"

namespace muster::train {

// How commands save a checkpoint, and stages the last one; a periodic one is saved by Saving
// directly (boundary.cc). BestCheckpoint (session/best_checkpoint.h) implements it with Saving,
// whose methods of the same names have the same errors. All methods are collectives.
class Saver {
 public:
  virtual ~Saver() = default;

  // The checkpoint, or why its files could not be written. Such an error is already reported, and
  // it is no error of the session.
  using Saved = absl::StatusOr<CheckpointWritten>;
  // Called at most once, with the end of a save.
  using Told = std::function<void(const Saved& saved)>;

  // Training continues after it. `command` asked for it; 0: none did.
  virtual absl::Status Save(int64_t command, Told told) = 0;
  // Training does not continue after it.
  virtual absl::StatusOr<Saved> SaveLast() = 0;
};

// Threading: the session's thread.
class Saving {
 public:
  // All outlive it.
  struct Parts {
    int rank;
    int64_t generation;
    double jobs_rate;     // the learning rate of the job file
    bool while_training;  // write what is not the last checkpoint while training continues
    Background* background;
    checkpoint::Writing* writing;
    Checkpoints* checkpoints;
    comm::Communicator* communicator;  // the background's
    const TrainedParameters* trained;
    const CommandSchedule* commands;
    const Attempts* attempts;
    const SessionState* session_state;
    const SessionReports* reports;
    StateSource* source;
    // The session starts from this checkpoint of the job; an empty path: from none. Only the
    // constructor reads it.
    Checkpoints::Restored restored = {};
  };
  explicit Saving(Parts parts);

  using Saved = Saver::Saved;
  using Told = Saver::Told;

  // Both save a checkpoint unless there is one of this step; if this step is the best one and that
  // checkpoint, of an earlier session, does not say so, there is another one. Collectives. The roll
  // call before them has shown that the losses are finite on every rank. Errors: the
  // communicator's; OUT_OF_RANGE: a parameter or buffer is not finite (that of a parameter may be
  // the background's); UNAVAILABLE: the lease is over; DATA_LOSS: the ranks' parameters differ.

  // Training continues after it. It waits until the files before are written, also for a checkpoint
  // of this step: only then all ranks know whether there is one, or another must be saved. It
  // copies what this rank writes, and returns; the files are written in the background. `told`
  // hears how it ended, on the thread that wrote them. What ends the session meanwhile is the
  // background's error.
  absl::Status Save(int64_t command = 0, Told told = nullptr);
  // The session trains no more after it: it returns when the files are written. It is tried up to
  // three times.
  absl::StatusOr<Saved> SaveLast();

  // Whether there is a checkpoint of this step. Only while nothing is written in the background.
  bool HasOneOf(int64_t step) const { return newest_.has_value() && newest_->step == step; }

 private:
  using Clock = std::chrono::steady_clock;
  // What a checkpoint contains.
  struct Contents {
    checkpoint::SavePoint point;
    checkpoint::State state;
    checkpoint::ModelRecords records;
    int64_t command = 0;  // asked for it
    Clock::time_point begun;
    double stall_seconds = 0;  // training waited for so long; 0: until it was written
  };

  checkpoint::SavePoint Point() const;
  // Whether the checkpoint of this step by this session is the best one.
  bool IsBest(const checkpoint::SavePoint& point) const;
  // After what was begun before has ended. Nothing: there is a checkpoint of this step.
  absl::StatusOr<std::optional<Contents>> Prepare(int64_t command);
  // A collective of the background. OUT_OF_RANGE on all ranks if a parameter of any rank is not
  // finite: it checks the copies where there are any, so that training does not wait for it.
  absl::StatusOr<Checkpoints::Saved> Write(const Contents& contents);
  // Takes in how it ended. An error ends the session.
  absl::StatusOr<Saved> Take(const Contents& contents, const Checkpoints::Saved& saved);

  const Parts parts_;
  // The newest checkpoint that this session wrote or started from. Used by the background's task
  // while one runs.
  std::optional<CheckpointWritten> newest_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVE_SAVING_H_
