// The optimizer's state of every parameter that was ever trained: of those that are trained now, in
// the optimizer's hands, and of those that are frozen, parked where it lay when they were frozen.
// What a new plan of the trained ones makes of it.
#ifndef MUSTER_WORKER_TRAIN_OPTIMIZER_STATE_H_
#define MUSTER_WORKER_TRAIN_OPTIMIZER_STATE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "common/trainability/trainability.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/communicator.h"
#include "worker/layout/placement.h"
#include "worker/models/model.h"
#include "worker/optim/optimizer.h"
#include "worker/parallel/strategy.h"

namespace muster::train {

// Of one parameter on this rank: elements [begin, begin + elements).
struct StatePiece {
  int64_t begin = 0;
  int64_t elements = 0;
  std::vector<at::Tensor> slots;  // in the order of the optimizer's; a scalar slot has one element
};

// Of some parameters, by their indices in the model.
struct OptimizerState {
  // Those of the model's parameters that have state, the same on all ranks.
  std::vector<bool> present;
  // Who holds what, the same on all ranks; over all the model's parameters. Without elements: rank
  // 0, or all where it is replicated.
  layout::Placement holders;
  // On this rank.
  std::map<size_t, StatePiece> held;
};

// Of the parameters that `strategy` trains, as `optimizer` holds it: the tensors are its own.
// trained: which those are.
OptimizerState StateOfOptimizer(const parallel::Strategy& strategy, optim::Optimizer& optimizer,
                                const std::vector<models::Parameter>& parameters,
                                const Mask& trained);

// Zeros for these parameters, laid out evenly over the ranks; where every rank has all state
// (replicated), whole on each. types: of the model's parameters. To be filled from a checkpoint.
OptimizerState ZeroState(const std::vector<bool>& present,
                         const std::vector<optim::StateSlot>& slots,
                         const std::vector<models::Parameter>& parameters,
                         const std::vector<at::ScalarType>& types, bool replicated, int rank,
                         int world_size);

struct StateMove {
  // For each of the new strategy's pieces: its state so far; empty where the parameter never had
  // any.
  std::vector<std::vector<at::Tensor>> of_pieces;
  // Of those that are frozen now.
  OptimizerState parked;
  int64_t bytes = 0;  // that all ranks sent
};

// Gives `state` (all there is) to the pieces of a new strategy, which trains `trained`. Where all
// ranks keep what they have of a parameter its tensors are handed over, not copied. A collective.
// Errors: the communicator's.
absl::StatusOr<StateMove> MoveState(OptimizerState state, const parallel::Strategy& strategy,
                                    const Mask& trained, const std::vector<optim::StateSlot>& slots,
                                    const std::vector<at::ScalarType>& types,
                                    comm::Communicator* communicator, int64_t step);

// Both together; no parameter is in both.
OptimizerState Join(OptimizerState a, OptimizerState b);

// Adds it to a checkpoint's state. replicated: every rank has all of it.
void AddState(const OptimizerState& state, const std::vector<optim::StateSlot>& slots,
              const std::vector<models::Parameter>& parameters,
              const std::vector<at::ScalarType>& types, bool replicated,
              checkpoint::StateBuilder* builder);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_OPTIMIZER_STATE_H_
