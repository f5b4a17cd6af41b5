// The model of a running session, and what trains it, for work between two steps: what files are
// written of, and what forwards without training run with.
#ifndef MUSTER_WORKER_TRAIN_SAVE_LIVE_STATE_H_
#define MUSTER_WORKER_TRAIN_SAVE_LIVE_STATE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/source.h"
#include "worker/checkpoint/state.h"
#include "worker/models/model.h"
#include "worker/parallel/communicators.h"
#include "worker/parallel/strategy.h"
#include "worker/train/job/job.h"
#include "worker/train/reports/session_state.h"
#include "worker/train/save/state_source.h"
#include "worker/train/step/finite.h"
#include "worker/train/step/trained_parameters.h"
#include "worker/train/training/training.h"

namespace muster::train {

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

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_SAVE_LIVE_STATE_H_
