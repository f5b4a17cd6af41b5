// Runs the stages `predict` of a session (docs/how-to/predict.md): over data (predict.h) or over
// prompts (evaluate/generate.h), into a file (prediction_file.h).
#ifndef MUSTER_WORKER_TRAIN_PREDICT_PREDICTOR_H_
#define MUSTER_WORKER_TRAIN_PREDICT_PREDICTOR_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/comm/communicator.h"
#include "worker/models/generate.h"
#include "worker/models/model.h"
#include "worker/train/data/rank_data.h"
#include "worker/train/evaluate/evaluation_scope.h"
#include "worker/train/evaluate/generate.h"
#include "worker/train/job/job.h"
#include "worker/train/job/stages.h"
#include "worker/train/reports/outside.h"
#include "worker/train/rollcall/session_roll_call.h"

namespace muster::train {

// "stages[2].predict"
std::string NameOfPrediction(int64_t stage);

// By the index of a stage that generates: what it asks the model for.
using GenerationRequests = std::map<int64_t, models::GenerationRequest>;

// A collective, before the first stage of a session: checks that these stages will be able to write
// their files, and reads their prompts. Errors name the stage.
absl::StatusOr<GenerationRequests> PreparePredictions(const std::vector<PlannedStage>& stages,
                                                      const Job& job, const Identity& identity,
                                                      const models::Model& model, int64_t step,
                                                      comm::Communicator& control);

// What a stage `predict` uses. All outlive its run.
struct PredictParts {
  ForwardParts forward;
  Identity identity;
  GenerationRequests requests;
  SessionGenerator* generator;
  const RankData* data;  // null: no stage needs data
  Calls* calls;
  const LeaseHolder* lease;  // null: no other process can replace this one
};

// How a run of such a stage ended that was not ended by an error of the session; the same on all
// ranks.
struct Predicted {
  bool interrupted = false;  // there is something else to do first
  absl::Status file;         // of writing the file
};
// A collective: runs the stage with this index once. Threading: the session's thread.
absl::StatusOr<Predicted> RunPrediction(const PredictParts& parts, int64_t stage,
                                        const PredictStage& predict);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_PREDICT_PREDICTOR_H_
