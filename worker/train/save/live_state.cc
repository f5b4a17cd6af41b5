#include "worker/train/save/live_state.h"

#include <utility>

#include "common/status/status.h"
#include "worker/device/event.h"
#include "worker/models/seed.h"
#include "worker/train/job/stages.h"
#include "worker/train/training/model_records.h"

namespace muster::train {

LiveState::LiveState(Parts parts)
    : parts_(std::move(parts)),
      trains_(AnyFit(parts_.job->stages)),
      plain_context_(std::make_unique<models::ForwardContext>(
          models::Mode::kTrain, models::MakeGenerator(parts_.job->seed, device()))) {}

parallel::Strategy* LiveState::strategy() const {
  return parts_.training == nullptr ? nullptr : &parts_.training->strategy();
}

models::ForwardContext& LiveState::context() const {
  return parts_.training == nullptr ? *plain_context_ : parts_.training->context();
}

absl::Status LiveState::AwaitParameters() {
  if (strategy() != nullptr) RETURN_IF_ERROR(strategy()->AwaitParameters());
  // On a GPU a gather that has been waited for may still run, and may fail.
  device::Event::Now(device()).Await();
  return parts_.communicators.failure();
}

absl::Status LiveState::AwaitState() {
  RETURN_IF_ERROR(AwaitParameters());
  RETURN_IF_ERROR(parts_.finite->CheckBuffers(parts_.session_state->step));
  return strategy()->VerifyParametersEqual(parts_.session_state->step);
}

absl::Status LiveState::AwaitWeights() {
  RETURN_IF_ERROR(AwaitParameters());
  RETURN_IF_ERROR(parts_.finite->Check(parts_.session_state->step, strategy()));
  return strategy()->VerifyParametersEqual(parts_.session_state->step);
}

checkpoint::State LiveState::State() const {
  return StateOf(*parts_.model, parts_.training, parts_.communicators.gradients->world_size());
}

absl::StatusOr<checkpoint::ModelRecords> LiveState::Records(const checkpoint::State& state) const {
  const Mask none(parts_.trained->in_force().size());
  ASSIGN_OR_RETURN(auto records,
                   RecordsOf(*parts_.job, *parts_.model, state, parts_.session_state->learning_rate,
                             trains_ ? parts_.trained->in_force() : none,
                             trains_ ? parts_.training->HasState() : none));
  if (records.first_weights.empty()) records.first_weights = parts_.first_weights;
  records.tokenizer = parts_.tokenizer;
  return records;
}

}  // namespace muster::train
