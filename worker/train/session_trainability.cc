// What becomes of parameters that are frozen and unfrozen, by commands and by the model's own code.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <bit>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/train/session_impl.h"
#include "worker/train/trainable.h"

namespace muster::train {

void SessionImpl::PlanAnew() {
  if (trains()) wanted_ = training_->mask();
  layout_ = strategy() == nullptr ? 0 : std::bit_cast<int64_t>(strategy()->layout_fingerprint());
  state_ = training_ != nullptr ? training_->State()
                                : TrainingState(*model_, {}, parts_.control->world_size());
}

absl::StatusOr<bool> SessionImpl::LetModelChange() {
  const bool hook = model_->HasStepHook();
  if (hook) {
    // The code sees its own flags.
    if (pending_.has_value()) SetFlags(parameters_, *pending_);
    RETURN_IF_ERROR(RunStepHook());
  }
  const bool differ = FlagsDiffer(parameters_, training_->mask());
  if (!differ && !hook) return false;
  Mask flags = FlagsOf(parameters_);
  if (job_.refresh == RefreshMode::kManual) {
    const bool undone = hook && !differ && pending_.has_value();
    if (differ || undone) {
      SetFlags(parameters_, training_->mask());
      const bool news = undone || pending_ != flags;
      pending_ = undone ? std::nullopt : std::optional(std::move(flags));
      if (news) ReportTrainability(std::nullopt);
    }
    return hook;
  }
  if (!differ) return hook;  // the ranks compare their flags before anything depends on them
  // Until the new plan the old one is in force.
  ASSIGN_OR_RETURN(TrainabilityChange change, ChangeTo(flags, 0));
  trainability_->Take(flags);
  change.version = trainability_->version();
  ReportTrainability(change);
  return true;
}

absl::Status SessionImpl::NameMaskDifference() {
  const int64_t count = static_cast<int64_t>(wanted_.size());
  const at::Tensor mine = at::empty({count}, at::kByte);
  for (int64_t i = 0; i < count; ++i) mine.data_ptr<uint8_t>()[i] = wanted_[i];
  const at::Tensor all = at::empty({count * parts_.control->world_size()}, at::kByte);
  RETURN_IF_ERROR(parts_.control->AllGather(all, mine, {"flags of parameters", step_})->Wait());
  const uint8_t* flags = all.data_ptr<uint8_t>();
  for (int64_t i = 0; i < count; ++i) {
    for (int rank = 1; rank < parts_.control->world_size(); ++rank) {
      if (flags[rank * count + i] == flags[i]) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "roll call of step ", step_ + 1, ": the ranks differ in which parameters are trained: '",
          trainability_->parameters()[i].name, "' is ", flags[i] ? "trained" : "frozen",
          " on rank 0 and ", flags[i] ? "frozen" : "trained", " on rank ", rank));
    }
  }
  return absl::InternalError("the hashes of equal masks differ");
}

TrainabilityChange SessionImpl::Difference(const Mask& mask, int64_t command) const {
  const Mask& before = training_->mask();
  const auto& parameters = trainability_->parameters();
  TrainabilityChange change{.step = step_,
                            .command = command,
                            .trained_before = TrainedElements(parameters, before),
                            .trained = TrainedElements(parameters, mask)};
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i] == before[i]) continue;
    (mask[i] ? change.unfrozen : change.frozen).push_back(parameters[i].name);
  }
  return change;
}

absl::StatusOr<TrainabilityChange> SessionImpl::ChangeTo(const Mask& mask, int64_t command) {
  TrainabilityChange change = Difference(mask, command);
  const Mask before = training_->mask();
  wanted_ = mask;
  if (mask == training_->mask()) return change;
  const auto start = std::chrono::steady_clock::now();
  Progress("planning anew what is trained");
  // Everybody wants the same, before anything depends on it.
  RETURN_IF_ERROR(CallNow().status());
  state_ = {};  // it holds on to what the old plan has
  ASSIGN_OR_RETURN(change.bytes_moved, training_->Refresh(mask, step_));
  PlanAnew();
  // Model code has no say in what an operator changed.
  if (pending_.has_value()) {
    for (size_t i = 0; i < mask.size(); ++i) {
      if (mask[i] != before[i]) (*pending_)[i] = mask[i];
    }
    if (*pending_ == mask) pending_.reset();
  }
  change.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return change;
}

std::vector<std::string> SessionImpl::PendingNames() const {
  std::vector<std::string> names;
  for (size_t i = 0; pending_.has_value() && i < pending_->size(); ++i) {
    if ((*pending_)[i] != training_->mask()[i])
      names.push_back(trainability_->parameters()[i].name);
  }
  return names;
}

void SessionImpl::ReportTrainability(const std::optional<TrainabilityChange>& change) {
  const auto& parameters = trainability_->parameters();
  TrainabilityInForce in_force{.version = trainability_->version(),
                               .rules = trainability_->rules(),
                               .trained = TrainedElements(parameters, training_->mask()),
                               .change = change};
  for (const auto& parameter : parameters) in_force.frozen += parameter.elements;
  in_force.frozen -= in_force.trained;
  in_force.pending = PendingNames();
  if (!std::exchange(described_, true)) in_force.parameters = parameters;
  Report(in_force);
}

absl::Status SessionImpl::Apply(const Command& command, const SetTrainabilityCommand& set) {
  if (!NeedsTraining(command)) return absl::OkStatus();
  const absl::StatusOr<Mask> mask = trainability_->With(set.rules);
  if (!mask.ok()) {
    Fail(command, mask.status(), "TRAINABILITY_INVALID");
    return absl::OkStatus();
  }
  if (set.dry_run) {
    ASSIGN_OR_RETURN(const Training::Foresight foresight, training_->Foresee(*mask));
    TrainabilityPlan plan{.change = Difference(*mask, command.number), .ranks = {}};
    plan.change.version = trainability_->version() + 1;
    plan.change.bytes_moved = foresight.bytes_moved;
    for (size_t rank = 0; rank < foresight.bytes_after.size(); ++rank) {
      plan.ranks.push_back({foresight.bytes_before[rank], foresight.bytes_after[rank]});
    }
    Finish(command, std::move(plan));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(TrainabilityChange change, ChangeTo(*mask, command.number));
  RETURN_IF_ERROR(trainability_->Add(set.rules));
  change.version = trainability_->version();
  ReportTrainability(change);
  Finish(command, std::move(change));
  return absl::OkStatus();
}

absl::Status SessionImpl::Apply(const Command& command, const RefreshCommand&) {
  if (!NeedsTraining(command)) return absl::OkStatus();
  const Mask mask = std::exchange(pending_, std::nullopt).value_or(training_->mask());
  ASSIGN_OR_RETURN(TrainabilityChange change, ChangeTo(mask, command.number));
  if (mask != trainability_->mask()) trainability_->Take(mask);
  change.version = trainability_->version();
  if (!change.frozen.empty() || !change.unfrozen.empty()) ReportTrainability(change);
  Finish(command, std::move(change));
  return absl::OkStatus();
}

}  // namespace muster::train
