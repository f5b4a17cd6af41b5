// Builds the parts of a session from a job: model with initial values, strategy, optimizer. Also
// lists the tensors of a checkpoint with the ranks that write them (TrainingState).
#ifndef MUSTER_WORKER_TRAIN_TRAINING_SETUP_H_
#define MUSTER_WORKER_TRAIN_TRAINING_SETUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/trainability/trainability.h"
#include "worker/checkpoint/load_weights.h"
#include "worker/checkpoint/state.h"
#include "worker/models/deferred_values.h"
#include "worker/models/model.h"
#include "worker/optim/loss_scaler.h"
#include "worker/optim/optimizer.h"
#include "worker/parallel/communicators.h"
#include "worker/parallel/strategy.h"
#include "worker/trace/recorder.h"
#include "worker/train/job/job.h"
#include "worker/train/training/averages.h"
#include "worker/train/training/optimizer_state.h"

namespace muster::train {

// Builds the model, with values from the seed or from the weights file. INVALID_ARGUMENT names the
// options or weights that do not fit.
// - `deferred`: receives the values of the parameters, which get no memory; null: the parameters
//   get memory.
// - `weights`: receives what was read of the weights file, if it is not null and the job has such a
//   file. With deferred values its status() is not final.
absl::StatusOr<std::unique_ptr<models::Model>> BuildModel(
    const Job& job, models::DeferredValues* deferred = nullptr,
    std::optional<checkpoint::LoadedWeights>* weights = nullptr);

// Moves the model's buffers, and with kAll its parameters, to the device. Called before other
// objects refer to their memory.
enum class Moved { kAll, kBuffers };
void MoveTo(c10::Device device, const models::Model& model, Moved moved);

// The same type as FsdpOptions::values.
using ParameterValues =
    std::function<at::Tensor(const at::Tensor& tensor, int64_t begin, int64_t end)>;

// Builds the strategy of the job. INVALID_ARGUMENT: a parameter or buffer does not fit.
// - `recorder`: records the events of units; null: nothing is recorded.
// - `values`: the values of parameters without memory; only with fsdp.
// - `kept`: memory of the previous plan.
absl::StatusOr<std::unique_ptr<parallel::Strategy>> BuildStrategy(
    const Job& job, const models::Model& model, const parallel::Communicators& communicators,
    trace::Recorder* recorder = nullptr, const ParameterValues& values = nullptr,
    parallel::KeptMemory kept = {});
// Returns the strategy's name in job files and checkpoints, such as "ddp".
std::string StrategyName(const StrategyConfig& config);

// Returns the units whose activations the backward pass recomputes. INVALID_ARGUMENT: a pattern
// matches no unit, or the model has no blocks.
absl::StatusOr<std::vector<const models::Unit*>> RecomputedUnits(const Job& job,
                                                                 const models::Model& model);

// Builds the optimizer of the parameter pieces that this rank updates. `states`: the state of each
// piece so far, as in OptimizedParameter; empty: zeros. INVALID_ARGUMENT: a group does not fit the
// parameters.
absl::StatusOr<std::unique_ptr<optim::Optimizer>> BuildOptimizer(
    const OptimizerConfig& config, const models::Model& model,
    const std::vector<parallel::Piece>& pieces, std::vector<std::vector<at::Tensor>> states = {});

// Returns the optimizer's slots of each parameter. INVALID_ARGUMENT as in BuildOptimizer.
absl::StatusOr<ParameterSlots> SlotsFor(const OptimizerConfig& config, const models::Model& model);

// The objects that train a model; all null if nothing is trained.
struct TrainingParts {
  const parallel::Strategy* strategy = nullptr;
  optim::Optimizer* optimizer = nullptr;   // for the strategy's pieces
  const ParameterSlots* slots = nullptr;   // the optimizer's
  optim::LossScaler* scaler = nullptr;     // also null without float16
  const OptimizerState* parked = nullptr;  // the state of frozen parameters
  // The parameters that the strategy trains; null: those whose tensors have requires_grad set.
  // Model code may have changed a flag since the plan was made. Such a change takes effect at the
  // next step.
  const Mask* mask = nullptr;
  const Averages* averages = nullptr;  // null: there are no averages
};

// Returns all tensors of a checkpoint: parameters, buffers, and the state of the optimizer, the
// averages and the loss scaler, if present. The tensors are the live ones, not copies. Each of
// `world_size` ranks writes a part of the checkpoint.
checkpoint::State TrainingState(const models::Model& model, const TrainingParts& training,
                                int world_size);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINING_SETUP_H_
