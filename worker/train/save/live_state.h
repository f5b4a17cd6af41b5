// The model of a running session, and what trains it, for work between two steps: what files are
// written of, and what forwards without training run with.
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

// What is written of a session: the live state, and the checks before a file of it is begun.
// Threading: the session's thread.
class StateSource {
 public:
  virtual ~StateSource() = default;

  // Waits until this rank has all parameters as they are after the last step, and checks that the
  // buffers are finite and that the parameters are the same on all ranks. A collective. Errors: the
  // communicators'; OUT_OF_RANGE: a buffer is not finite; DATA_LOSS: the ranks' parameters differ.
  virtual absl::Status AwaitState() = 0;
  // The same, and OUT_OF_RANGE also if a parameter is not finite.
  virtual absl::Status AwaitWeights() = 0;
  // Everything that a checkpoint holds as tensors: the live ones, not copies. A change of the
  // trained parameters replaces them.
  virtual checkpoint::State State() const = 0;
  // What files with this state say about its parameters.
  virtual absl::StatusOr<checkpoint::ModelRecords> Records(
      const checkpoint::State& state) const = 0;
};

class LiveState : public StateSource {
 public:
  // All outlive it.
  struct Parts {
    const Job* job;
    models::Model* model;
    const TrainedParameters* trained;  // of the model
    Training* training;  // null: nothing is trained, and every rank has the whole model
    const FiniteCheck* finite;
    parallel::Communicators communicators;  // the strategy's
    const SessionState* session_state;
    // Where the weights of the checkpoint came from with which the session started.
    std::string first_weights;
    // What made the tokens of the job's data, or of that checkpoint.
    tokenizer::Source tokenizer;
  };
  explicit LiveState(Parts parts);

  models::Model& model() const { return *parts_.model; }
  Training* training() const { return parts_.training; }
  // Null if there is no training().
  parallel::Strategy* strategy() const;
  // For forwards.
  models::ForwardContext& context() const;
  c10::Device device() const { return parts_.communicators.gradients->device(); }

  // Waits until this rank has all parameters as they are after the last step.
  absl::Status AwaitParameters();
  absl::Status AwaitState() override;
  absl::Status AwaitWeights() override;
  checkpoint::State State() const override;
  absl::StatusOr<checkpoint::ModelRecords> Records(const checkpoint::State& state) const override;

 private:
  const Parts parts_;
  const bool trains_;
  const std::unique_ptr<models::ForwardContext> plain_context_;  // used if there is no training
};

// ---- What files say of parameters and optimizer, for readers that have neither.

// Of the "param" items of `state`, in the model's SourceOrder. `learning_rate`: what the schedule
// scales. `trained` and `ever_trained`: by the model's Parameters; the latter includes the former.
// A job without an optimizer trains nothing. INVALID_ARGUMENT: a group of the optimizer does not
// fit the parameters.
absl::StatusOr<checkpoint::ModelRecords> RecordsOf(const Job& job, const models::Model& model,
                                                   const checkpoint::State& state,
                                                   double learning_rate, const Mask& trained,
                                                   const Mask& ever_trained);

// FAILED_PRECONDITION: the state that a checkpoint has of a parameter is that of another kind of
// optimizer than the job has for it; the message names both.
absl::Status SameOptimizers(const manifest::Manifest& saved, const checkpoint::ModelRecords& own);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVE_LIVE_STATE_H_
