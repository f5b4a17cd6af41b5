// The optimizer's state of all parameters that were ever trained, and its move after a change of
// the trained parameters. The optimizer holds the state of the trained parameters. The state of
// frozen parameters ("parked") stays on the ranks that held it when the parameters were frozen.
#ifndef MUSTER_WORKER_TRAIN_TRAINING_OPTIMIZER_STATE_H_
#define MUSTER_WORKER_TRAIN_TRAINING_OPTIMIZER_STATE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "common/sharding/placement.h"
#include "common/trainability/trainability.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/options.h"
#include "worker/parallel/strategy.h"

namespace muster::train {

// For each parameter of the model, the slots that the optimizer keeps.
using ParameterSlots = std::vector<std::vector<optim::StateSlot>>;

// The state of one parameter on this rank: elements [begin, begin + elements).
struct StatePiece {
  int64_t begin = 0;
  int64_t elements = 0;
  std::vector<at::Tensor> slots;  // in the order of ParameterSlots; a scalar slot has one element
};

// The state of some of the model's parameters.
struct OptimizerState {
  // The parameters of the model that have state; the same on all ranks.
  std::vector<bool> present;
  // The elements of all parameters that each rank holds; the same on all ranks. Rank 0 holds a
  // parameter without elements; with replicated state, all ranks hold it.
  sharding::Placement holders;
  // The state that this rank holds.
  std::map<size_t, StatePiece> held;
};

// Returns the optimizer's state of the parameters that `strategy` trains (`trained`). The tensors
// are the optimizer's own.
OptimizerState StateOfOptimizer(const parallel::Strategy& strategy, optim::Optimizer& optimizer,
                                const std::vector<models::Parameter>& parameters,
                                const Mask& trained);

// Returns zeros for these parameters, divided evenly over the ranks; with `replicated` every rank
// has all state. `types`: those of the model's parameters. The caller fills the state from a
// checkpoint.
OptimizerState ZeroState(const std::vector<bool>& present, const ParameterSlots& slots,
                         const std::vector<models::Parameter>& parameters,
                         const std::vector<at::ScalarType>& types, bool replicated, int rank,
                         int world_size);

struct StateMove {
  // For each piece of the new strategy, the state so far; empty if the parameter never had state.
  std::vector<std::vector<at::Tensor>> of_pieces;
  // The state of the parameters that are frozen in the new plan.
  OptimizerState parked;
  int64_t bytes = 0;  // sent by all ranks together
};

// Gives `state` (the state of all parameters) to the pieces of a new strategy, which trains
// `trained`. If no rank's part of a parameter changes, the tensors are passed on without a copy. A
// collective. Errors: the communicator's.
absl::StatusOr<StateMove> MoveState(OptimizerState state, const parallel::Strategy& strategy,
                                    const Mask& trained, const ParameterSlots& slots,
                                    const std::vector<at::ScalarType>& types,
                                    comm::Communicator* communicator, int64_t step);

// Combines two states; no parameter may be in both.
OptimizerState Join(OptimizerState a, OptimizerState b);

// Adds `state` to the state of a checkpoint. `replicated`: every rank has all of `state`.
void AddState(const OptimizerState& state, const ParameterSlots& slots,
              const std::vector<models::Parameter>& parameters,
              const std::vector<at::ScalarType>& types, bool replicated,
              checkpoint::StateBuilder* builder);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINING_OPTIMIZER_STATE_H_
