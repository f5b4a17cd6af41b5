// Runs the stages `predict` of a session (docs/how-to/predict.md), over data (predict.h) or over
// prompts (evaluate/generate.h), and writes their files (prediction_file.h).
#ifndef MUSTER_WORKER_TRAIN_PREDICT_PREDICTOR_H_
#define MUSTER_WORKER_TRAIN_PREDICT_PREDICTOR_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/models/language/generate.h"
#include "worker/models/model.h"
#include "worker/train/data/rank_data.h"
#include "worker/train/evaluate/evaluation_scope.h"
#include "worker/train/evaluate/generate.h"
#include "worker/train/job/job.h"
#include "worker/train/job/stages.h"
#include "worker/train/reports/coordinator_interface.h"
#include "worker/train/rollcall/session_roll_call.h"

namespace muster::train {

// Returns the stage's name for messages, such as "stages[2].predict".
std::string NameOfPrediction(int64_t stage);

// The generation request of each stage that generates, by the index of the stage.
using GenerationRequests = std::map<int64_t, models::GenerationRequest>;

// Checks, before the first stage of a session, that these stages can write their files, and reads
// their prompts. A collective. Errors name the stage.
absl::StatusOr<GenerationRequests> PreparePredictions(const std::vector<PlannedStage>& stages,
                                                      const Job& job, const Identity& identity,
                                                      const models::Model& model, int64_t step,
                                                      comm::Communicator& control);

// The objects that a stage `predict` uses. All must outlive the run of the stage.
struct PredictDependencies {
  ForwardDependencies forward;
  Identity identity;
  GenerationRequests requests;
  SessionGenerator* generator;
  const RankData* data;  // null: no stage needs data
  Calls* calls;
  const LeaseHolder* lease;  // null: no other process can replace this one
};

// The end of a run without an error of the session; the same on all ranks.
struct Predicted {
  bool interrupted = false;  // the job has something else to do first
  absl::Status file;         // the result of writing the file
};
// Runs the stage with this index once. A collective. Threading: the session's thread.
absl::StatusOr<Predicted> RunPrediction(const PredictDependencies& deps, int64_t stage,
                                        const PredictStage& predict);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_PREDICT_PREDICTOR_H_
