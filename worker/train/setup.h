// Builds the parts of a session from a job: model with its initial values, data sets, optimizer.
#ifndef MUSTER_WORKER_TRAIN_SETUP_H_
#define MUSTER_WORKER_TRAIN_SETUP_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/checkpoint/state.h"
#include "worker/data/dataset.h"
#include "worker/models/model.h"
#include "worker/optim/optimizer.h"
#include "worker/train/job.h"

namespace muster::train {

// The model with values from the seed or from the weights file. INVALID_ARGUMENT: options or weights that
// do not fit, naming them.
absl::StatusOr<std::unique_ptr<models::Model>> BuildModel(const Job& job);

// `name`: "data.train" or "data.validate", for errors.
absl::StatusOr<std::unique_ptr<data::Dataset>> OpenDataset(const std::string& name,
                                                           const DataConfig& config,
                                                           const models::Model& model);

absl::StatusOr<std::unique_ptr<optim::Optimizer>> BuildOptimizer(const OptimizerConfig& config,
                                                                 const models::Model& model);

// Everything that a checkpoint holds as tensors: parameters, buffers, and the optimizer's state where there
// is one (null: none). The tensors are live.
checkpoint::State TrainingState(const models::Model& model, optim::Optimizer* optimizer);

// Hash of what all ranks must agree on before they communicate: parameters and buffers, strategy,
// optimizer, schedule, batch, stages, and the sizes of the data sets (each rank opens its own files; null:
// none).
int64_t PlanFingerprint(const Job& job, const models::Model& model, const data::Dataset* train,
                        const data::Dataset* validate);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SETUP_H_
