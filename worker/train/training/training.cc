#include "worker/train/training/training.h"

#include <utility>

#include "common/sharding/placement.h"
#include "common/status/status.h"
#include "worker/models/seed.h"
#include "worker/parallel/move_pieces.h"
#include "worker/parallel/strategy.h"

namespace muster::train {
namespace {

// Returns the bytes that a rank holds of the chosen parameters. `chosen` null: of all parameters.
int64_t BytesOf(const sharding::Placement& placement, size_t rank,
                const std::vector<int64_t>& element_bytes, const Mask* chosen = nullptr) {
  int64_t bytes = 0;
  for (const sharding::Range& range : placement.holders[rank]) {
    if (chosen != nullptr && !(*chosen)[range.parameter]) continue;
    bytes += (range.end - range.begin) * element_bytes[range.parameter];
  }
  return bytes;
}

bool UsesAveragesAfterTraining(const Job& job) {
  const bool exports =
      job.weights_export.has_value() && job.weights_export->from == ExportConfig::From::kAverages;
  return exports || (job.evaluation.averages.has_value() && job.evaluation.averages->evaluate);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Training>> Training::Create(const Dependencies& deps,
                                                           const models::DeferredValues* deferred) {
  std::unique_ptr<Training> training(new Training(deps));
  for (const auto& [name, tensor] : deps.model->Parameters()) {
    training->types_.push_back(tensor.scalar_type());
  }
  ParameterValues values;
  if (deferred != nullptr) {
    values = [deferred](const at::Tensor& tensor, int64_t begin, int64_t end) {
      return deferred->Range(tensor, begin, end);
    };
  }
  if (deps.job->numerics.precision == Precision::kFloat16) {
    training->scaler_.emplace(deps.job->numerics.loss_scale,
                              deps.communicators.gradients->device());
  }
  RETURN_IF_ERROR(training->Plan(values, {}));
  training->ClearParked();
  if (deps.sampler == nullptr) return training;
  if (deps.job->evaluation.averages.has_value()) {
    training->averages_.emplace(*deps.job->evaluation.averages, deps.model->Parameters(),
                                training->types_, deps.communicators.gradients);
  }
  ASSIGN_OR_RETURN(training->slots_, SlotsFor(*deps.job->optimizer, *deps.model));
  RETURN_IF_ERROR(training->MakeOptimizer({}));
  return training;
}

absl::Status Training::Plan(const ParameterValues& values, parallel::KeptMemory kept) {
  ASSIGN_OR_RETURN(strategy_, BuildStrategy(*deps_.job, *deps_.model, deps_.communicators,
                                            deps_.recorder, values, std::move(kept)));
  context_ = strategy_->MakeContext(
      models::Mode::kTrain,
      models::MakeGenerator(deps_.job->seed, deps_.communicators.gradients->device()));
  ASSIGN_OR_RETURN(const auto recomputed, RecomputedUnits(*deps_.job, *deps_.model));
  context_->Recompute(recomputed);
  return absl::OkStatus();
}

absl::Status Training::MakeOptimizer(std::vector<std::vector<at::Tensor>> states) {
  ASSIGN_OR_RETURN(optimizer_, BuildOptimizer(*deps_.job->optimizer, *deps_.model,
                                              strategy_->pieces(), std::move(states)));
  stepper_.emplace(Stepper::Dependencies{
      deps_.job, deps_.rank, deps_.model, context_.get(), deps_.control, deps_.communicators,
      deps_.dataset, deps_.sampler, strategy_.get(), optimizer_.get(),
      scaler_ ? &*scaler_ : nullptr, deps_.finite, deps_.recorder, deps_.trained,
      deps_.communicators.gradients->device()});
  return absl::OkStatus();
}

OptimizerState Training::AllState() const {
  if (optimizer_ == nullptr) return parked_;
  return Join(StateOfOptimizer(*strategy_, *optimizer_, deps_.model->Parameters(), mask()),
              parked_);
}

void Training::ClearParked() {
  parked_ = {};
  parked_.present.resize(mask().size());
  parked_.holders.elements = strategy_->plan().owners.elements;
  parked_.holders.holders.resize(deps_.communicators.gradients->world_size());
}

absl::StatusOr<Training::RefreshEstimate> Training::Estimate(const Mask& mask) const {
  const int world_size = deps_.communicators.gradients->world_size();
  const std::vector<int64_t> element_bytes = parallel::ElementBytes(types_);
  int64_t whole = 0;
  const auto parameters = deps_.model->Parameters();
  for (size_t i = 0; i < types_.size(); ++i) {
    whole += parameters[i].tensor.numel() * element_bytes[i];
  }
  std::vector<int64_t> state_bytes;  // bytes of state per element of each parameter
  for (size_t i = 0; i < types_.size(); ++i) {
    int64_t slots = 0;
    for (const optim::StateSlot& slot : slots_[i]) slots += !slot.scalar;
    state_bytes.push_back(slots * element_bytes[i]);
  }

  const parallel::Placements now = strategy_->PlacementsFor(this->mask());
  const parallel::Placements planned = strategy_->PlacementsFor(mask);
  const OptimizerState state = AllState();
  Mask comes_along;  // parameters with state that will be trained
  Mask stays;        // parameters with state that will be frozen
  for (size_t i = 0; i < mask.size(); ++i) {
    comes_along.push_back(state.present[i] && mask[i]);
    stays.push_back(state.present[i] && !mask[i]);
  }
  RefreshEstimate estimate;
  ASSIGN_OR_RETURN(estimate.bytes_moved,
                   parallel::BytesToMove(Only(state.holders, comes_along),
                                         Only(planned.owners, comes_along), state_bytes));
  if (now.holders.has_value()) {
    ASSIGN_OR_RETURN(const int64_t moved,
                     parallel::BytesToMove(*now.holders, *planned.holders, element_bytes));
    estimate.bytes_moved += moved;
  }
  if (averages_.has_value() && averages_->begun()) {
    const bool replicated = !strategy_->plan().sharded;
    ASSIGN_OR_RETURN(
        const int64_t moved,
        parallel::BytesToMove(Averages::PlacementFor(now, replicated),
                              Averages::PlacementFor(planned, replicated), element_bytes));
    estimate.bytes_moved += moved;
  }
  for (int rank = 0; rank < world_size; ++rank) {
    const auto bytes = [&](const parallel::Placements& placements, int64_t of_state) {
      const int64_t held = placements.holders.has_value()
                               ? BytesOf(*placements.holders, rank, element_bytes)
                               : whole;
      return held + BytesOf(placements.owners, rank, element_bytes) + of_state;
    };
    estimate.bytes_before.push_back(bytes(now, BytesOf(state.holders, rank, state_bytes)));
    estimate.bytes_after.push_back(
        bytes(planned, BytesOf(planned.owners, rank, state_bytes) +
                           BytesOf(state.holders, rank, state_bytes, &stays)));
  }
  return estimate;
}

absl::StatusOr<int64_t> Training::Refresh(int64_t step) {
  RETURN_IF_ERROR(strategy_->AwaitParameters());
  OptimizerState state = AllState();
  parked_ = {};
  ASSIGN_OR_RETURN(const int64_t bytes, Replan(step));
  if (deps_.sampler == nullptr) return bytes;
  ASSIGN_OR_RETURN(StateMove move, MoveState(std::move(state), *strategy_, mask(), slots_, types_,
                                             deps_.communicators.gradients, step));
  parked_ = std::move(move.parked);
  RETURN_IF_ERROR(MakeOptimizer(std::move(move.of_pieces)));
  return bytes + move.bytes;
}

absl::Status Training::Release(int64_t step) {
  RETURN_IF_ERROR(strategy_->AwaitParameters());
  parked_ = {};
  if (!UsesAveragesAfterTraining(*deps_.job)) averages_.reset();
  RETURN_IF_ERROR(Replan(step).status());
  ClearParked();
  scaler_.reset();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Training::Replan(int64_t step) {
  std::optional<parallel::Arrangement> shards;
  if (const auto* held = strategy_->store().shards(); held != nullptr) {
    shards.emplace();
    shards->holders = held->holders;
  }
  stepper_.reset();
  optimizer_.reset();
  context_.reset();
  if (averages_.has_value()) averages_->LeavePlan();
  parallel::KeptMemory kept = strategy_->ReleaseModel();
  // The shards of the old plan live until they are moved to the new plan.
  if (shards.has_value()) shards->held = kept.held;
  strategy_.reset();

  deps_.trained->BringIntoForce();
  ParameterValues values;
  if (shards.has_value()) values = [](const at::Tensor&, int64_t, int64_t) { return at::Tensor(); };
  RETURN_IF_ERROR(Plan(values, std::move(kept)));
  int64_t bytes = 0;
  if (shards.has_value()) {
    const auto* wanted = strategy_->store().shards();
    ASSIGN_OR_RETURN(
        bytes, parallel::MovePieces(*shards, {.holders = wanted->holders, .held = wanted->held},
                                    parallel::ElementBytes(types_), deps_.communicators.gradients,
                                    {"reshard of parameters", step}));
    shards.reset();
  }
  if (!averages_.has_value()) return bytes;
  ASSIGN_OR_RETURN(const int64_t moved, averages_->EnterPlan(plan(), step));
  return bytes + moved;
}

void Training::UpdateAverages(int64_t step) {
  if (!averages_.has_value()) return;
  const trace::Phase phase(deps_.recorder, "averages");
  averages_->Update(step, plan());
}

void Training::ExpectAverages(bool present) {
  if (!averages_.has_value()) return;
  if (present) {
    averages_->Begin(plan());
  } else {
    averages_->Forget();
  }
}

void Training::AddFrozenState(const std::vector<bool>& present) {
  parked_ =
      ZeroState(present, slots_, deps_.model->Parameters(), types_, !strategy_->plan().sharded,
                static_cast<int>(deps_.rank), deps_.communicators.gradients->world_size());
}

checkpoint::State Training::State() const {
  return TrainingState(*deps_.model,
                       {.strategy = strategy_.get(),
                        .optimizer = optimizer_.get(),
                        .slots = &slots_,
                        .scaler = scaler_ ? const_cast<optim::LossScaler*>(&*scaler_) : nullptr,
                        .parked = &parked_,
                        .mask = &mask(),
                        .averages = averages_ ? &*averages_ : nullptr},
                       deps_.communicators.gradients->world_size());
}

checkpoint::State StateOf(const models::Model& model, const Training* training, int world_size) {
  return training != nullptr ? training->State() : TrainingState(model, {}, world_size);
}

}  // namespace muster::train
