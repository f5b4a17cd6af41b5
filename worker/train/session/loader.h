// Makes the third phase of a session from the second (loaded.h).
#ifndef MUSTER_WORKER_TRAIN_SESSION_LOADER_H_
#define MUSTER_WORKER_TRAIN_SESSION_LOADER_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"
#include "worker/checkpoint/state.h"
#include "worker/train/save/checkpoints.h"
#include "worker/train/session/loaded.h"

namespace muster::train {

// Fills `loaded`, which has what the ranks agreed on. Threading: one thread. Load is a collective;
// all ranks call the private methods in the same order.
class Loader {
 public:
  explicit Loader(Loaded* loaded)
      : loaded_(*loaded), agreed_(*loaded->agreed), opened_(*loaded->agreed->opened) {}

  absl::Status Load();

 private:
  // ---- What there is without a checkpoint (loaded.cc).
  absl::Status MakeSampler();
  absl::Status MakeTraining();
  // Ends the session on all ranks if the values that some rank has read of the weights file are
  // wrong: with fsdp each rank reads the values of its own slices only.
  absl::Status CheckWeights() const;
  // INVALID_ARGUMENT: a stage needs a metric that the model does not give.
  absl::Status CheckMetrics() const;
  // Plans the stages in steps; where a stage counts in epochs, only the data tell their number.
  // INVALID_ARGUMENT: the job is not valid with this number of steps. This is not checked if the
  // session continues from a checkpoint of its own.
  absl::Status PlanSteps();
  absl::Status CheckKnownEnds() const;

  // ---- What the session starts from (start_from.cc).
  // Opens the job's checkpoints and continues from one of them, if there is any.
  absl::Status OpenCheckpoints();
  // Prepares the session for a checkpoint with this manifest, and returns the state to fill from
  // it.
  absl::StatusOr<checkpoint::State> StateFor(const manifest::Manifest& manifest);
  void Restore(const Checkpoints::Restored& restored);
  // A part of Restore: the place in the data. `own`: how the session takes samples. `world_size`:
  // of the checkpoint.
  void GoOnWithData(const manifest::SamplingRecord& own, int64_t world_size);
  // Begins with another job's checkpoint, if the job names one.
  absl::Status StartFromOther();
  // The state to fill from it.
  absl::StatusOr<checkpoint::State> StateFromOther(const manifest::Manifest& manifest);
  // Tells the leader's log and the coordinator that the averages begin anew, unless this checkpoint
  // has some.
  void TellOfAverages(const Checkpoints::Restored& restored) const;
  // Fills the optimizer's state from the job's file, if it names one.
  absl::Status ImportOptimizerState();
  // The parameters of whose optimizer's state the checkpoint holds.
  std::set<std::string> WithState(const manifest::Manifest& manifest) const;
  // The parameters of these names that are frozen.
  Mask FrozenOf(const std::set<std::string>& names) const;
  checkpoint::State State() const;
  // Of a job that trains.
  absl::StatusOr<checkpoint::ModelRecords> Records() const;

  Loaded& loaded_;
  Agreed& agreed_;
  Opened& opened_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_LOADER_H_
