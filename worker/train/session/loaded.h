// The third phase of a session: the objects that train the model, with the state of the checkpoint
// to start from, and the remaining stages.
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
  // Trains the model. A job that trains nothing has this object, too, if its model is sharded.
  // Null: nothing is trained, and every rank has the whole model.
  std::unique_ptr<Training> training;
  std::unique_ptr<Checkpoints> checkpoints;  // null: the job has no checkpoints
  Checkpoints::Restored restored;            // restored checkpoint; an empty path: none
  std::string started_from;                  // path of that, or of another job's; empty: none
  // The source of the weights in the checkpoint from which this session starts.
  std::string first_weights;
  // The tokenizer of the job's data, or of the checkpoint if the data's is not known.
  tokenizer::Source tokenizer;
  CommandSchedule::Position commands;  // in the checkpoint to start from
  std::vector<PlannedStage> stages;
  optim::Schedule written_schedule;  // of the job file; the end may be open
  GenerationRequests requests;       // for the remaining stages `predict`
};

// Makes the objects of this phase. A collective. Errors: INVALID_ARGUMENT: a known end would lose
// training (known_ends.h), or the job does not fit model and data; those of files and of
// checkpoints; the communicators'.
absl::StatusOr<std::unique_ptr<Loaded>> Load(std::unique_ptr<Agreed> agreed);

// Opens the job's checkpoints and fills `loaded`, as a part of Load (start_from.cc). The source is
// one of these checkpoints, another job's checkpoint, or a file with the optimizer's state. Called
// after model and training are made.
absl::Status StartFrom(Loaded& loaded);

// Returns the plan of the stages. Some stages may have ended early.
std::vector<PlannedStage> PlanOf(const Job& job, const SessionState& state);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SESSION_LOADED_H_
