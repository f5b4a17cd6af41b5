// The third phase of a session: what trains the model, with the state of the checkpoint from which
// the session starts, and the stages that are left.
#ifndef MUSTER_WORKER_TRAIN_SESSION_LOADED_H_
#define MUSTER_WORKER_TRAIN_SESSION_LOADED_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/source.h"
#include "worker/data/sampler.h"
#include "worker/optim/schedule.h"
#include "worker/train/job/stages.h"
#include "worker/train/predict/predictor.h"
#include "worker/train/save/checkpoints.h"
#include "worker/train/schedule/command_schedule.h"
#include "worker/train/session/agreed.h"
#include "worker/train/training/training.h"

namespace muster::train {

struct Loaded {
  Opened& opened() { return *agreed->opened; }
  // Whether the job has a fit stage.
  bool trains() const { return sampler != nullptr; }

  std::unique_ptr<Agreed> agreed;
  std::unique_ptr<data::Sampler> sampler;  // null: the job trains nothing
  // Also in jobs that train nothing if the model is sharded; null: nothing is trained, and every
  // rank has the whole model.
  std::unique_ptr<Training> training;
  std::unique_ptr<Checkpoints> checkpoints;  // null: the job has none
  Checkpoints::Restored restored;            // the one that was restored; an empty path: none
  std::string started_from;                  // its path, or another job's checkpoint; empty: none
  // Where the weights of the checkpoint came from with which this session starts.
  std::string first_weights;
  // What made the tokens of the job's data, or of that checkpoint.
  tokenizer::Source tokenizer;
  CommandSchedule::Position commands;  // of the checkpoint from which the session starts
  std::vector<PlannedStage> stages;
  optim::Schedule written_schedule;  // as in the job file: its end may be open
  GenerationRequests requests;  // the prompts of its stages `predict` that are left
};

// A collective. Errors: INVALID_ARGUMENT: an end that would lose training is known now
// (known_ends.h), or the job does not fit model and data; those of files and of checkpoints; the
// communicators'.
absl::StatusOr<std::unique_ptr<Loaded>> Load(std::unique_ptr<Agreed> agreed);

// A part of Load (start_from.cc): opens the job's checkpoints, and fills `loaded` from one of them,
// or from what the job names to begin with: another job's checkpoint, or a file with the state of
// the optimizer. The model is made, and what trains it.
absl::Status StartFrom(Loaded& loaded);

// The plan of the stages, of which some may have ended early.
std::vector<PlannedStage> PlanOf(const Job& job, const SessionState& state);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_LOADED_H_
