// The optimizer's state of every parameter that was ever trained, and how it moves when the set of
// trained parameters changes. The optimizer holds the state of the parameters that are trained now.
// The state of frozen parameters ("parked") stays on the ranks where it was when they were frozen.
#ifndef MUSTER_WORKER_TRAIN_TRAINING_OPTIMIZER_STATE_H_
#define MUSTER_WORKER_TRAIN_TRAINING_OPTIMIZER_STATE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "common/layout/placement.h"
#include "common/trainability/trainability.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/options.h"
#include "worker/parallel/strategy.h"

namespace muster::train {

// The slots that the optimizer keeps of each of the model's parameters.
using ParameterSlots = std::vector<std::vector<optim::StateSlot>>;

// The state of one parameter on this rank: elements [begin, begin + elements).
struct StatePiece {
  int64_t begin = 0;
  int64_t elements = 0;
  std::vector<at::Tensor> slots;  // in the order of ParameterSlots; a scalar slot has one element
};

// The state of some parameters, by their indices in the model.
struct OptimizerState {
  // Which of the model's parameters have state; the same on all ranks.
  std::vector<bool> present;
  // Which rank holds which elements of all the model's parameters; the same on all ranks. A
  // parameter without elements is held by rank 0, or by all ranks if the state is replicated.
  layout::Placement holders;
  // The state that this rank holds.
  std::map<size_t, StatePiece> held;
};

// The state of the parameters that `strategy` trains (`trained`), as `optimizer` holds it: the
// tensors are the optimizer's own.
OptimizerState StateOfOptimizer(const parallel::Strategy& strategy, optim::Optimizer& optimizer,
                                const std::vector<models::Parameter>& parameters,
                                const Mask& trained);

// Zeros for these parameters, divided evenly over the ranks; with `replicated` every rank has all
// of them. `types`: the types of the model's parameters. The caller fills it from a checkpoint.
OptimizerState ZeroState(const std::vector<bool>& present, const ParameterSlots& slots,
                         const std::vector<models::Parameter>& parameters,
                         const std::vector<at::ScalarType>& types, bool replicated, int rank,
                         int world_size);

struct StateMove {
  // For each of the new strategy's pieces: its state so far; empty if the parameter never had
  // state.
  std::vector<std::vector<at::Tensor>> of_pieces;
  // The state of the parameters that are frozen now.
  OptimizerState parked;
  int64_t bytes = 0;  // sent by all ranks together
};

// Gives `state` (the state of all parameters) to the pieces of a new strategy, which trains
// `trained`. If all ranks keep what they have of a parameter, its tensors are passed on and not
// copied. A collective. Errors: the communicator's.
absl::StatusOr<StateMove> MoveState(OptimizerState state, const parallel::Strategy& strategy,
                                    const Mask& trained, const ParameterSlots& slots,
                                    const std::vector<at::ScalarType>& types,
                                    comm::Communicator* communicator, int64_t step);

// Combines two states; no parameter may be in both.
OptimizerState Join(OptimizerState a, OptimizerState b);

// Adds `state` to the state of a checkpoint. `replicated`: every rank has all of it.
void AddState(const OptimizerState& state, const ParameterSlots& slots,
              const std::vector<models::Parameter>& parameters,
              const std::vector<at::ScalarType>& types, bool replicated,
              checkpoint::StateBuilder* builder);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINING_OPTIMIZER_STATE_H_
