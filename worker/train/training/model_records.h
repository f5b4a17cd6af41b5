// What a checkpoint says about the model's parameters and the optimizer, for readers that have
// neither.
#ifndef MUSTER_WORKER_TRAIN_TRAINING_MODEL_RECORDS_H_
#define MUSTER_WORKER_TRAIN_TRAINING_MODEL_RECORDS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"
#include "common/trainability/trainability.h"
#include "worker/checkpoint/state.h"
#include "worker/models/model.h"
#include "worker/train/job/job.h"

namespace muster::train {

// Of the "param" items of `state`, in the model's SourceOrder. `learning_rate`: what the schedule
// scales. `trained` and `ever_trained`: by the model's Parameters; the latter includes the former.
// A job without an optimizer trains nothing. INVALID_ARGUMENT: a group of the optimizer does not
// fit the parameters.
absl::StatusOr<checkpoint::ModelRecords> RecordsOf(const Job& job, const models::Model& model,
                                                   const checkpoint::State& state,
                                                   double learning_rate, const Mask& trained,
                                                   const Mask& ever_trained);

// FAILED_PRECONDITION: the state that a checkpoint has of a parameter is that of another kind of
// optimizer than the job has for it; the message names both.
absl::Status SameOptimizers(const manifest::Manifest& saved, const checkpoint::ModelRecords& own);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINING_MODEL_RECORDS_H_
