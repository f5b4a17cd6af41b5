// The model and the training of a running session, for work between two steps: the state for files,
// and the model for forwards without training.
#ifndef MUSTER_WORKER_TRAIN_SAVE_LIVE_STATE_H_
#define MUSTER_WORKER_TRAIN_SAVE_LIVE_STATE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/manifest/manifest.h"
#include "common/tokenizer/source.h"
#include "common/trainability/trainability.h"
#include "worker/checkpoint/state.h"
#include "worker/models/model.h"
#include "worker/parallel/communicators.h"
#include "worker/parallel/strategy.h"
#include "worker/train/job/job.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/step/finite.h"
#include "worker/train/step/trained_parameters.h"
#include "worker/train/training/training.h"

namespace muster::train {

// The state for files, and the checks before a file is begun. Threading: the session's thread.
class StateSource {
 public:
  virtual ~StateSource() = default;

  // Waits until this rank has all parameters of the last step. Checks that the buffers are finite
  // and that the parameters are the same on all ranks. A collective. Errors: the communicators';
  // OUT_OF_RANGE: a buffer is not finite; DATA_LOSS: the ranks' parameters differ.
  virtual absl::Status AwaitState() = 0;
  // Does the same as AwaitState, and returns OUT_OF_RANGE also if a parameter is not finite.
  virtual absl::Status AwaitWeights() = 0;
  // Returns all tensors of a checkpoint: the live ones, not copies. A change of the trained
  // parameters replaces them.
  virtual checkpoint::State State() const = 0;
  // Returns the records about the parameters for a file with this state.
  virtual absl::StatusOr<checkpoint::ModelRecords> Records(
      const checkpoint::State& state) const = 0;
};

class LiveState : public StateSource {
 public:
  // All must outlive the LiveState.
  struct Dependencies {
    const Job* job;
    models::Model* model;
    const TrainedParameters* trained;  // the model's
    Training* training;  // null: nothing is trained, and every rank has the whole model
    const FiniteCheck* finite;
    parallel::Communicators communicators;  // the strategy's
    const SessionState* session_state;
    // The source of the weights in the checkpoint from which the session started.
    std::string first_weights;
    // The tokenizer of the job's data, or of the checkpoint if the data's is not known.
    tokenizer::Source tokenizer;
  };
  explicit LiveState(Dependencies deps);

  models::Model& model() const { return *deps_.model; }
  Training* training() const { return deps_.training; }
  // Returns null if training() is null.
  parallel::Strategy* strategy() const;
  // Returns the context for forwards.
  models::ForwardContext& context() const;
  c10::Device device() const { return deps_.communicators.gradients->device(); }

  // Waits until this rank has all parameters of the last step.
  absl::Status AwaitParameters();
  absl::Status AwaitState() override;
  absl::Status AwaitWeights() override;
  checkpoint::State State() const override;
  absl::StatusOr<checkpoint::ModelRecords> Records(const checkpoint::State& state) const override;

 private:
  const Dependencies deps_;
  const bool trains_;
  const std::unique_ptr<models::ForwardContext> plain_context_;  // without training()
};

// ---- The records in files about parameters and optimizer, for readers without the job.

// Returns the records of the "param" items of `state`, in the model's SourceOrder. `learning_rate`:
// the rate that the schedule scales. `trained`, `ever_trained`: in the order of the model's
// Parameters; `ever_trained` includes `trained`. A job without an optimizer trains nothing.
// INVALID_ARGUMENT: a group of the optimizer does not fit the parameters.
absl::StatusOr<checkpoint::ModelRecords> RecordsOf(const Job& job, const models::Model& model,
                                                   const checkpoint::State& state,
                                                   double learning_rate, const Mask& trained,
                                                   const Mask& ever_trained);

// FAILED_PRECONDITION: a parameter's state in the checkpoint is of another kind of optimizer than
// the job's. The message names both kinds.
absl::Status SameOptimizers(const manifest::Manifest& saved, const checkpoint::ModelRecords& own);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVE_LIVE_STATE_H_
