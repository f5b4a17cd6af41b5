// Builds the parts of a session from a job: model with its initial values, optimizer.
#ifndef MUSTER_WORKER_TRAIN_SETUP_H_
#define MUSTER_WORKER_TRAIN_SETUP_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/checkpoint/state.h"
#include "worker/models/model.h"
#include "worker/optim/loss_scaler.h"
#include "worker/optim/optimizer.h"
#include "worker/train/job.h"
#include "worker/train/rank_data.h"

namespace muster::train {

// The model with values from the seed or from the weights file. INVALID_ARGUMENT: options or weights that
// do not fit, naming them.
absl::StatusOr<std::unique_ptr<models::Model>> BuildModel(const Job& job);

// INVALID_ARGUMENT: a group whose pattern matches no parameter.
absl::StatusOr<std::unique_ptr<optim::Optimizer>> BuildOptimizer(const OptimizerConfig& config,
                                                                 const models::Model& model);

// Everything that a checkpoint holds as tensors: parameters, buffers, and the state of the optimizer and
// of the loss scaler where there is one (null: none). The tensors are live. `world_size` ranks write it, each a part.
checkpoint::State TrainingState(const models::Model& model, optim::Optimizer* optimizer,
                                optim::LossScaler* scaler, int world_size);

// Hash of what all ranks must agree on before they communicate: parameters and buffers, strategy,
// optimizer, schedule, batch, stages, and the sizes of the data sets (of all ranks' files where each has its
// own; null: none).
int64_t PlanFingerprint(const Job& job, const models::Model& model, const RankData* train,
                        const RankData* validate);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SETUP_H_
