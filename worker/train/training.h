// What trains a model on this rank: strategy, optimizer and step, of those parameters that are
// trained; and the new plan when they change.
//
// Threading: the session's thread. Ranks call everything that is a collective alike.
#ifndef MUSTER_WORKER_TRAIN_TRAINING_H_
#define MUSTER_WORKER_TRAIN_TRAINING_H_

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
#include "worker/train/finite.h"
#include "worker/train/job.h"
#include "worker/train/optimizer_state.h"
#include "worker/train/setup.h"
#include "worker/train/step.h"
#include "worker/train/trained_parameters.h"

namespace muster::train {

class Training {
 public:
  // All outlive it.
  struct Parts {
    const Job* job;
    int64_t rank;
    models::Model* model;
    TrainedParameters* trained;             // of the model
    comm::Communicator* communicator;       // used for nothing else
    comm::Communicator* control = nullptr;  // Stepper's
    // Null where nothing is trained, and the model lies in shards to be evaluated.
    const data::Dataset* dataset = nullptr;
    data::Sampler* sampler = nullptr;
    const FiniteCheck* finite = nullptr;
    trace::Recorder* recorder = nullptr;
  };
  // deferred: where the parameters have no memory, this has their values. INVALID_ARGUMENT: a job
  // and a model that do not go together.
  static absl::StatusOr<std::unique_ptr<Training>> Create(const Parts& parts,
                                                          const models::DeferredValues* deferred);

  parallel::Strategy& strategy() { return *strategy_; }
  const parallel::Strategy& strategy() const { return *strategy_; }
  models::ForwardContext& context() { return *context_; }
  // Only where something is trained.
  Stepper& stepper() { return *stepper_; }
  std::vector<optim::StateSlot> slots() const { return optimizer_->Slots(); }

  // Between two steps, a collective: brings into force what `trained` wants, plans anew, and brings
  // everything to where the new plan wants it. The state of what is frozen stays where it lay; it
  // comes back with what is trained again. What is wanted is equal on all ranks. After an error the
  // object is of no use. The bytes that all ranks sent to others.
  absl::StatusOr<int64_t> Refresh(int64_t step);

  // What Refresh would do, with what a rank holds between steps in each plan. Pure.
  struct Foresight {
    int64_t bytes_moved = 0;
    std::vector<int64_t> bytes_before;  // by rank: parameters, gradients, optimizer state
    std::vector<int64_t> bytes_after;
  };
  absl::StatusOr<Foresight> Foresee(const Mask& mask) const;

  // Makes room for the state of frozen parameters that a checkpoint has: zeros. There is none yet.
  void Park(const std::vector<bool>& present);

  // Everything that a checkpoint holds as tensors, live.
  checkpoint::State State() const;

 private:
  explicit Training(const Parts& parts) : parts_(parts) {}
  const Mask& mask() const { return parts_.trained->in_force(); }
  absl::Status Plan(const ParameterValues& values, parallel::KeptMemory kept);
  absl::Status Equip(std::vector<std::vector<at::Tensor>> states);
  // Everything there is; the tensors are the optimizer's own.
  OptimizerState AllState() const;

  const Parts parts_;
  std::vector<at::ScalarType> types_;  // of the parameters
  std::unique_ptr<parallel::Strategy> strategy_;
  std::unique_ptr<models::ForwardContext> context_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::LossScaler> scaler_;  // only with float16
  std::optional<Stepper> stepper_;
  OptimizerState parked_;  // of parameters that are frozen
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TRAINING_H_
