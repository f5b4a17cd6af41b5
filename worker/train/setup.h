// Builds the parts of a session from a job: model with its initial values, optimizer.
#ifndef MUSTER_WORKER_TRAIN_SETUP_H_
#define MUSTER_WORKER_TRAIN_SETUP_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/trainability/trainability.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/communicator.h"
#include "worker/models/deferred_values.h"
#include "worker/models/model.h"
#include "worker/optim/loss_scaler.h"
#include "worker/optim/optimizer.h"
#include "worker/parallel/strategy.h"
#include "worker/trace/recorder.h"
#include "worker/train/job.h"
#include "worker/train/optimizer_state.h"

namespace muster::train {

// The model with values from the seed or from the weights file. deferred: where parameters get no
// memory, this has their values; null: they get memory. INVALID_ARGUMENT: options or weights that
// do not fit, naming them.
absl::StatusOr<std::unique_ptr<models::Model>> BuildModel(
    const Job& job, models::DeferredValues* deferred = nullptr);

// As FsdpOptions' values.
using ParameterValues = std::function<at::Tensor(const at::Tensor& tensor)>;

// How the ranks share the model, as the job says. recorder: for what happens to units; null:
// nothing is recorded. values: where parameters have no memory; only with fsdp. kept: of the plan
// before. INVALID_ARGUMENT: a parameter or buffer that does not fit.
absl::StatusOr<std::unique_ptr<parallel::Strategy>> BuildStrategy(
    const Job& job, const models::Model& model, comm::Communicator* communicator,
    trace::Recorder* recorder = nullptr, const ParameterValues& values = nullptr,
    parallel::KeptMemory kept = {});
// Its name in job files and checkpoints: "ddp".
std::string StrategyName(const StrategyConfig& config);

// Those whose activations are not kept. INVALID_ARGUMENT: patterns that fit nothing, a model
// without blocks.
absl::StatusOr<std::vector<const models::Unit*>> RecomputedUnits(const Job& job,
                                                                 const models::Model& model);

// Of the pieces of the model's parameters that this rank updates. states: of each piece so far, as
// OptimizedParameter's; empty: all zeros. INVALID_ARGUMENT: a group whose pattern matches no
// parameter.
absl::StatusOr<std::unique_ptr<optim::Optimizer>> BuildOptimizer(
    const OptimizerConfig& config, const models::Model& model,
    const std::vector<parallel::Piece>& pieces, std::vector<std::vector<at::Tensor>> states = {});

// What trains a model; all null where nothing does.
struct TrainingParts {
  const parallel::Strategy* strategy = nullptr;
  optim::Optimizer* optimizer = nullptr;   // of the strategy's pieces
  optim::LossScaler* scaler = nullptr;     // null also without float16
  const OptimizerState* parked = nullptr;  // of frozen parameters
  // Which parameters the strategy trains; null: as the tensors' flags say. Model code may have
  // changed a flag since, which takes effect with the next step only.
  const Mask* mask = nullptr;
};

// Everything that a checkpoint holds as tensors: parameters, buffers, and the state of the
// optimizer and of the loss scaler where there is one. The tensors are live. `world_size` ranks
// write it, each a part.
checkpoint::State TrainingState(const models::Model& model, const TrainingParts& training,
                                int world_size);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SETUP_H_
