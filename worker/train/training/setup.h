// Builds the parts of a session from a job (model with its initial values, strategy, optimizer),
// and the list of the tensors of which a checkpoint is made, with who writes them (TrainingState).
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

// Builds the model, with values from the seed or from the weights file. `deferred`: receives the
// values of the parameters, which get no memory; null: the parameters get memory. `weights`: if it
// is not null and the job has a weights file, what was read of it; its status() is not yet final if
// values are deferred. INVALID_ARGUMENT names the options or weights that do not fit.
absl::StatusOr<std::unique_ptr<models::Model>> BuildModel(
    const Job& job, models::DeferredValues* deferred = nullptr,
    std::optional<checkpoint::LoadedWeights>* weights = nullptr);

// Moves the model's buffers, and with kAll its parameters, to the device. Called before anything
// else refers to their memory.
enum class Moved { kAll, kBuffers };
void MoveTo(c10::Device device, const models::Model& model, Moved moved);

// As FsdpOptions::values.
using ParameterValues =
    std::function<at::Tensor(const at::Tensor& tensor, int64_t begin, int64_t end)>;

// Builds the strategy of the job, by which the ranks share the model. `recorder`: records the
// events of units; null: nothing is recorded. `values`: the values of parameters without memory;
// only with fsdp. `kept`: memory of the previous plan. INVALID_ARGUMENT: a parameter or buffer does
// not fit.
absl::StatusOr<std::unique_ptr<parallel::Strategy>> BuildStrategy(
    const Job& job, const models::Model& model, const parallel::Communicators& communicators,
    trace::Recorder* recorder = nullptr, const ParameterValues& values = nullptr,
    parallel::KeptMemory kept = {});
// Its name in job files and checkpoints: "ddp".
std::string StrategyName(const StrategyConfig& config);

// The units whose activations are recomputed in the backward pass. INVALID_ARGUMENT: a pattern
// matches no unit, or the model has no blocks.
absl::StatusOr<std::vector<const models::Unit*>> RecomputedUnits(const Job& job,
                                                                 const models::Model& model);

// Builds the optimizer of the parameter pieces that this rank updates. `states`: the state of each
// piece so far, as in OptimizedParameter; empty: all zeros. INVALID_ARGUMENT: a group does not fit
// the parameters.
absl::StatusOr<std::unique_ptr<optim::Optimizer>> BuildOptimizer(
    const OptimizerConfig& config, const models::Model& model,
    const std::vector<parallel::Piece>& pieces, std::vector<std::vector<at::Tensor>> states = {});

// The slots that this optimizer keeps of each parameter of the model. INVALID_ARGUMENT: as above.
absl::StatusOr<ParameterSlots> SlotsFor(const OptimizerConfig& config, const models::Model& model);

// What trains a model; all null if nothing is trained.
struct TrainingParts {
  const parallel::Strategy* strategy = nullptr;
  optim::Optimizer* optimizer = nullptr;   // of the strategy's pieces
  const ParameterSlots* slots = nullptr;   // of the optimizer
  optim::LossScaler* scaler = nullptr;     // null also without float16
  const OptimizerState* parked = nullptr;  // of frozen parameters
  // Which parameters the strategy trains; null: those whose tensors have requires_grad set. Model
  // code may have changed a flag since; this takes effect at the next step.
  const Mask* mask = nullptr;
  const Averages* averages = nullptr;  // null: there are none
};

// Everything that a checkpoint holds as tensors: parameters, buffers, and the state of the
// optimizer, of the averages and of the loss scaler if there is one. The tensors are the live ones,
// not copies. `world_size` ranks write the checkpoint, each a part of it.
checkpoint::State TrainingState(const models::Model& model, const TrainingParts& training,
                                int world_size);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINING_SETUP_H_
