// Trains a model on this rank: strategy, optimizer and step for the trained parameters. A change of
// these parameters needs a new plan.
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
  // All must outlive this object.
  struct Dependencies {
    const Job* job;
    int64_t rank;
    models::Model* model;
    TrainedParameters* trained;             // the model's
    parallel::Communicators communicators;  // used by this object only
    comm::Communicator* control = nullptr;  // the Stepper's
    // Null if nothing is trained and the model is sharded only for evaluation.
    const data::Dataset* dataset = nullptr;
    data::Sampler* sampler = nullptr;
    const FiniteCheck* finite = nullptr;
    trace::Recorder* recorder = nullptr;
  };
  // `deferred`: the values of parameters without memory; null: the parameters have memory.
  // INVALID_ARGUMENT: the job does not fit the model.
  static absl::StatusOr<std::unique_ptr<Training>> Create(const Dependencies& deps,
                                                          const models::DeferredValues* deferred);

  parallel::Strategy& strategy() { return *strategy_; }
  const parallel::Strategy& strategy() const { return *strategy_; }
  models::ForwardContext& context() { return *context_; }
  // Called only if something is trained.
  Stepper& stepper() { return *stepper_; }
  // The slots of all parameters of the model; empty if nothing is trained.
  const ParameterSlots& slots() const { return slots_; }

  // Puts the mask that `trained` wants into force, between two steps. A collective; the mask is
  // equal on all ranks. Makes a new plan, and moves parameters and optimizer state to the ranks
  // that need them. The state of a frozen parameter stays on its ranks and is used when the
  // parameter is trained again. Returns the bytes that all ranks sent. After an error this object
  // must not be used.
  absl::StatusOr<int64_t> Refresh(int64_t step);

  // Frees, after the last step, gradients, buckets, the optimizer's state, and the averages unless
  // the job still uses them. A collective. Makes a plan for evaluation in which nothing is trained.
  // `trained` wants no parameter. After Release, of the methods below only State may be called.
  // After an error this object must not be used.
  absl::Status Release(int64_t step);

  // The effect of Refresh, and each rank's bytes between steps in the old and the new plan.
  struct RefreshEstimate {
    int64_t bytes_moved = 0;
    std::vector<int64_t> bytes_before;  // by rank: parameters, gradients, optimizer state
    std::vector<int64_t> bytes_after;
  };
  absl::StatusOr<RefreshEstimate> Estimate(const Mask& mask) const;

  // Gives these frozen parameters a state of zeros, for the caller to fill from a file. Replaces
  // the state of all frozen parameters.
  void AddFrozenState(const std::vector<bool>& present);

  // Returns the parameters with state: the trained parameters, and those that were trained before.
  Mask HasState() const { return AllState().present; }

  // Returns null if the job has no averages, or if nothing needs the averages any more.
  Averages* averages() { return averages_ ? &*averages_ : nullptr; }
  // Updates the averages. Called after each step of the job.
  void UpdateAverages(int64_t step);
  // Prepares for a checkpoint. `present`: the checkpoint has averages, and memory for them is made;
  // otherwise the averages are dropped.
  void ExpectAverages(bool present);

  // Returns all tensors of a checkpoint: the live ones, not copies.
  checkpoint::State State() const;

 private:
  explicit Training(const Dependencies& deps) : deps_(deps) {}
  const Mask& mask() const { return deps_.trained->in_force(); }
  Averages::Plan plan() const { return {strategy_.get(), &mask()}; }
  absl::Status Plan(const ParameterValues& values, parallel::KeptMemory kept);
  // Puts the mask that `trained` wants into force, makes a new plan without an optimizer, and moves
  // the parameters to the ranks that need them. Returns the bytes that all ranks sent.
  absl::StatusOr<int64_t> Replan(int64_t step);
  // Sets parked_ to no state.
  void ClearParked();
  absl::Status MakeOptimizer(std::vector<std::vector<at::Tensor>> states);
  // Returns the state of all parameters, trained and frozen. The tensors are the optimizer's own.
  OptimizerState AllState() const;

  const Dependencies deps_;
  std::vector<at::ScalarType> types_;  // the parameters' types
  std::unique_ptr<parallel::Strategy> strategy_;
  std::unique_ptr<models::ForwardContext> context_;
  ParameterSlots slots_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::LossScaler> scaler_;  // only with float16
  std::optional<Stepper> stepper_;
  OptimizerState parked_;  // the state of frozen parameters
  std::optional<Averages> averages_;
};

// Returns Training::State. Without training (null), returns the state of a model that every rank
// has whole. `world_size`: the number of ranks that write the checkpoint.
checkpoint::State StateOf(const models::Model& model, const Training* training, int world_size);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINING_TRAINING_H_
