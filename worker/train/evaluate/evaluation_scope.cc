#include "worker/train/evaluate/evaluation_scope.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/device/host_values.h"
#include "worker/memory/available.h"
#include "worker/memory/device_memory.h"

namespace muster::train {

using parallel::PassMemory;

bool HasMemoryForAll(const EvaluationMemory& memory) {
  const uint64_t more = memory.needed - std::min(memory.needed, memory.kept);
  return more == 0 || more <= memory.available / memory.ranks / 2;
}

EvaluationScope::~EvaluationScope() {
  if (!open_ || averages_ == nullptr) return;
  // With shards, gathers that read the slices may be in flight.
  parallel::ParameterStore& store = strategy_->store();
  if (store.shards() == nullptr) store.EndPass().IgnoreError();
}

absl::Status EvaluationScope::Begin(PassMemory memory) {
  open_ = true;
  if (strategy_ == nullptr) return absl::OkStatus();
  std::function<void()> exchange;
  if (averages_ != nullptr) exchange = [averages = averages_] { averages->Exchange(); };
  RETURN_IF_ERROR(strategy_->store().BeginPass(memory, std::move(exchange)));
  return averages_ == nullptr ? absl::OkStatus() : averages_->Spread(step_);
}

absl::Status EvaluationScope::End() {
  open_ = false;
  if (strategy_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(strategy_->store().EndPass());
  return averages_ == nullptr ? absl::OkStatus() : averages_->Spread(step_);
}

absl::StatusOr<std::unique_ptr<EvaluationScope>> EvaluationPasses::Begin(Training* training) {
  const auto& averages = deps_.job->evaluation.averages;
  return BeginWith(training, averages.has_value() && averages->evaluate, /*gathers=*/true);
}

absl::StatusOr<std::unique_ptr<EvaluationScope>> EvaluationPasses::WithAverages(
    Training* training) {
  return BeginWith(training, /*averages=*/true, /*gathers=*/false);
}

absl::StatusOr<std::unique_ptr<EvaluationScope>> EvaluationPasses::BeginWith(Training* training,
                                                                             bool averages,
                                                                             bool gathers) {
  parallel::Strategy* strategy = nullptr;
  Averages* shown = nullptr;
  if (training != nullptr) {
    strategy = &training->strategy();
    if (averages && training->averages() != nullptr && training->averages()->begun()) {
      shown = training->averages();
    }
    RETURN_IF_ERROR(strategy->AwaitParameters());
  }
  std::unique_ptr<EvaluationScope> scope(
      new EvaluationScope(strategy, shown, deps_.session_state->step));
  PassMemory memory = PassMemory::kUnits;
  if (gathers && strategy != nullptr && strategy->store().shards() != nullptr) {
    ASSIGN_OR_RETURN(memory, ChooseMemory(strategy->store()));
  }
  RETURN_IF_ERROR(scope->Begin(memory));
  return scope;
}

absl::StatusOr<PassMemory> EvaluationPasses::ChooseMemory(const parallel::ParameterStore& store) {
  if (deps_.job->evaluation.reshard == EvaluationReshard::kAlways) return PassMemory::kUnits;
  if (deps_.job->evaluation.reshard == EvaluationReshard::kNever) return PassMemory::kWhole;
  const bool cpu = deps_.device.is_cpu();  // otherwise each rank has its own GPU
  const EvaluationMemory memory{.needed = static_cast<uint64_t>(store.BytesOfWholePass()),
                                .kept = gathered_,
                                .available = deps_.available != nullptr ? deps_.available()
                                             : cpu                      ? memory::AvailableBytes()
                                                   : memory::AvailableDeviceBytes(),
                                .ranks = cpu ? deps_.background->ranks_of_node() : 1};
  const at::Tensor short_of_it = at::full({1}, int64_t{!HasMemoryForAll(memory)}, at::kLong);
  RETURN_IF_ERROR(
      deps_.control->AllReduceSum(short_of_it, {"memory for evaluation", deps_.session_state->step})
          ->Wait());
  const int64_t ranks = device::HostValues<int64_t>(short_of_it)[0];
  if (ranks == 0) {
    gathered_ = std::max(gathered_, memory.needed);
    return PassMemory::kWhole;
  }
  if (!std::exchange(told_, true) && deps_.reports->leader()) {
    const std::string text = absl::StrCat(
        "evaluation gathers each unit for each of its forwards, because ", ranks, " of ",
        deps_.control->world_size(),
        " ranks have too little memory for all parameters: rank 0 needs ", memory.needed,
        " bytes more, and ", memory.ranks, " ranks share ", memory.available,
        " available bytes, of which evaluation takes half at most; evaluation.reshard: never "
        "gathers all of them nevertheless");
    spdlog::info("{}", text);
    deps_.reports->Report(Notice{"EVALUATION_RESHARDS", text, deps_.session_state->step});
  }
  return PassMemory::kUnits;
}

}  // namespace muster::train
