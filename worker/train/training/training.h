// What trains a model on this rank: strategy, optimizer and step for the parameters that are
// trained, and a new plan when these change.
//
// Threading: the session's thread. All ranks make the same calls to the methods that are
// collectives.
#ifndef MUSTER_WORKER_TRAIN_TRAINING_TRAINING_H_
#define MUSTER_WORKER_TRAIN_TRAINING_TRAINING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/communicator.h"
#include "worker/data/dataset.h"
#include "worker/data/sampler.h"
#include "worker/models/deferred_values.h"
#include "worker/models/model.h"
#include "worker/parallel/communicators.h"
#include "worker/train/job/job.h"
#include "worker/train/step/finite.h"
#include "worker/train/step/step.h"
#include "worker/train/step/trained_parameters.h"
#include "worker/train/training/averages.h"
#include "worker/train/training/optimizer_state.h"
#include "worker/train/training/setup.h"

namespace muster::train {

class Training {
 public:
  // All outlive it.
  struct Parts {
    const Job* job;
    int64_t rank;
    models::Model* model;
    TrainedParameters* trained;             // of the model
    parallel::Communicators communicators;  // used for nothing else
    comm::Communicator* control = nullptr;  // Stepper's
    // Null if nothing is trained and the model is sharded only to be evaluated.
    const data::Dataset* dataset = nullptr;
    data::Sampler* sampler = nullptr;
    const FiniteCheck* finite = nullptr;
    trace::Recorder* recorder = nullptr;
  };
  // `deferred`: the values of parameters without memory; null: the parameters have memory.
  // INVALID_ARGUMENT: the job does not fit the model.
  static absl::StatusOr<std::unique_ptr<Training>> Create(const Parts& parts,
                                                          const models::DeferredValues* deferred);

  parallel::Strategy& strategy() { return *strategy_; }
  const parallel::Strategy& strategy() const { return *strategy_; }
  models::ForwardContext& context() { return *context_; }
  // Only if something is trained.
  Stepper& stepper() { return *stepper_; }
  // Of all parameters of the model; empty if nothing is trained.
  const ParameterSlots& slots() const { return slots_; }

  // A collective between two steps: puts into force the mask that `trained` wants, which is equal
  // on all ranks, makes a new plan, and moves parameters and optimizer state to where the new plan
  // needs them. The state of frozen parameters stays on its ranks and is used again when they are
  // trained again. Returns the bytes that all ranks sent. After an error the object must not be
  // used any more.
  absl::StatusOr<int64_t> Refresh(int64_t step);

  // A collective after the last step: frees gradients, buckets, the optimizer's state, and the
  // averages unless the job still uses them, and makes a plan in which nothing is trained, for
  // evaluation. `trained` wants no parameter. After it, of what follows only State may be called.
  // After an error the object must not be used any more.
  absl::Status Release(int64_t step);

  // What Refresh would do, and the bytes that each rank holds between steps in the old and the new
  // plan. Pure.
  struct Foresight {
    int64_t bytes_moved = 0;
    std::vector<int64_t> bytes_before;  // by rank: parameters, gradients, optimizer state
    std::vector<int64_t> bytes_after;
  };
  absl::StatusOr<Foresight> Foresee(const Mask& mask) const;

  // Gives these frozen parameters state, all zeros, which is then filled from a file. It replaces
  // the state of all frozen parameters.
  void AddFrozenState(const std::vector<bool>& present);

  // Which parameters have state: those that are trained, and those that were.
  Mask HasState() const { return AllState().present; }

  // Null if the job has none, or if nothing needs them any more.
  Averages* averages() { return averages_ ? &*averages_ : nullptr; }
  // Called after each step of the job.
  void UpdateAverages(int64_t step);
  // Before a checkpoint is loaded: makes memory for the averages that it contains (`present`), or
  // drops them.
  void ExpectAverages(bool present);

  // Everything that a checkpoint holds as tensors: the live ones, not copies.
  checkpoint::State State() const;

 private:
  explicit Training(const Parts& parts) : parts_(parts) {}
  const Mask& mask() const { return parts_.trained->in_force(); }
  Averages::Plan plan() const { return {strategy_.get(), &mask()}; }
  absl::Status Plan(const ParameterValues& values, parallel::KeptMemory kept);
  // Puts the mask that `trained` wants into force, makes a new plan without an optimizer, and moves
  // the parameters to where it needs them. Returns the bytes that all ranks sent.
  absl::StatusOr<int64_t> Replan(int64_t step);
  // There is no state of frozen parameters.
  void ClearParked();
  absl::Status MakeOptimizer(std::vector<std::vector<at::Tensor>> states);
  // The state of all parameters, trained and frozen; the tensors are the optimizer's own.
  OptimizerState AllState() const;

  const Parts parts_;
  std::vector<at::ScalarType> types_;  // of the parameters
  std::unique_ptr<parallel::Strategy> strategy_;
  std::unique_ptr<models::ForwardContext> context_;
  ParameterSlots slots_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::LossScaler> scaler_;  // only with float16
  std::optional<Stepper> stepper_;
  OptimizerState parked_;  // of parameters that are frozen
  std::optional<Averages> averages_;
};

// Training::State; without training (null), the state of a model that every rank has whole.
// `world_size`: of the ranks that write the checkpoint.
checkpoint::State StateOf(const models::Model& model, const Training* training, int world_size);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINING_TRAINING_H_
