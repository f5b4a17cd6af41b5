#include "worker/train/rollcall/roll_call_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status.h"
#include "worker/train/job/numbered.h"

namespace muster::train {
namespace {

using Field = int64_t (*)(const RollCallRecord&);

// The fields that must be equal on all ranks.
constexpr std::pair<const char*, Field> kEqual[] = {
    {"generation", [](const RollCallRecord& record) { return record.generation; }},
    {"step", [](const RollCallRecord& record) { return record.step; }},
    {"attempt", [](const RollCallRecord& record) { return record.attempt; }},
    {"epoch", [](const RollCallRecord& record) { return record.epoch; }},
    {"sampler cursor", [](const RollCallRecord& record) { return record.cursor; }},
    {"layout of the parameters", [](const RollCallRecord& record) { return record.layout; }},
    {"loss step", [](const RollCallRecord& record) { return record.loss.step; }},
    {"outcome of the loss step", [](const RollCallRecord& record) { return record.loss.outcome; }},
};

// "rank 1", "ranks 0, 2, 3 and 5 more": the ranks of the table for which `fits` is true.
template <typename Fits>
std::string RanksThat(const std::vector<RollCallRecord>& table, const Fits& fits) {
  std::vector<int64_t> ranks;
  for (size_t rank = 0; rank < table.size(); ++rank) {
    if (fits(table[rank])) ranks.push_back(static_cast<int64_t>(rank));
  }
  return Numbered("rank", ranks);
}

// Comes before all other checks: ranks with different masks may be at different steps.
absl::Status CheckMasks(const std::vector<RollCallRecord>& table,
                        const std::vector<std::string>& names, bool* differ) {
  *differ = std::any_of(table.begin(), table.end(), [&](const RollCallRecord& record) {
    return record.mask_hash != table[0].mask_hash;
  });
  if (!*differ) return absl::OkStatus();
  // The first parameter that some rank changes. A rank without a change, or with a later first
  // change, does not change this parameter.
  int64_t first = -1;
  for (const RollCallRecord& record : table) {
    if (record.first_change >= 0 && (first < 0 || record.first_change < first)) {
      first = record.first_change;
    }
  }
  const auto changes = [&](const RollCallRecord& record) { return record.first_change == first; };
  if (first < 0 || std::all_of(table.begin(), table.end(), changes)) return absl::OkStatus();
  const std::string name = static_cast<size_t>(first) < names.size()
                               ? absl::StrCat("'", names[first], "'")
                               : absl::StrCat("parameter number ", first);
  return absl::FailedPreconditionError(absl::StrCat(
      "roll call of step ", table[0].step, ": the ranks differ in which parameters are trained: ",
      name, " was frozen or unfrozen on ", RanksThat(table, changes), " and not on ",
      RanksThat(table, [&](const RollCallRecord& record) { return !changes(record); })));
}

absl::Status CheckAgreement(const std::vector<RollCallRecord>& table) {
  for (const auto& [name, field] : kEqual) {
    for (size_t rank = 1; rank < table.size(); ++rank) {
      if (field(table[rank]) == field(table[0])) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "roll call of step ", table[0].step, ": the ranks differ in ", name, ": rank 0 says ",
          field(table[0]), ", rank ", rank, " says ", field(table[rank])));
    }
  }
  for (size_t rank = 1; rank < table.size(); ++rank) {
    const double first = table[0].learning_rate, other = table[rank].learning_rate;
    // Compares bits, so that NaN equals NaN.
    if (std::bit_cast<int64_t>(other) == std::bit_cast<int64_t>(first)) continue;
    return absl::FailedPreconditionError(
        absl::StrFormat("roll call of step %d: the ranks differ in the learning rate: rank 0 says "
                        "%.17g, rank %d says %.17g",
                        table[0].step, first, rank, other));
  }
  return absl::OkStatus();
}

// Returns the ranks whose loss is not finite, at most three: "rank 1 (nan), rank 4 (inf)"; "" if
// all losses are finite.
std::string NonFiniteLosses(const std::vector<RollCallRecord>& table) {
  constexpr int kShown = 3;
  std::string text;
  int count = 0;
  for (size_t rank = 0; rank < table.size(); ++rank) {
    if (std::isfinite(table[rank].loss.sum) || ++count > kShown) continue;
    absl::StrAppend(&text, count == 1 ? "" : ", ", "rank ", rank, " (", table[rank].loss.sum, ")");
  }
  if (count > kShown) absl::StrAppend(&text, " and ", count - kShown, " more");
  return text;
}

// Returns an error if training must not continue after this step (StepOutcome).
absl::Status CheckLosses(const std::vector<RollCallRecord>& table, double mean) {
  const auto outcome = static_cast<StepOutcome>(table[0].loss.outcome);
  if (outcome == StepOutcome::kSkipped) return absl::OkStatus();
  const std::string ranks = NonFiniteLosses(table);
  std::string message;
  if (!ranks.empty()) {
    message = absl::StrCat("the loss of step ", table[0].loss.step, " is not finite on ", ranks);
  } else if (outcome == StepOutcome::kRefused) {
    message = absl::StrCat("a gradient of step ", table[0].loss.step,
                           " is not finite, although the loss is (", mean, ")");
  } else {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(absl::StrCat(
      message,
      outcome == StepOutcome::kOverflowed ? "; the step was not applied"
                                          : "; no checkpoint and no export contains this step",
      "; check the learning rate, clip_grad_norm, and the data of that step"));
}

absl::StatusOr<std::optional<StepLoss>> MeanLoss(const std::vector<RollCallRecord>& table) {
  if (table[0].loss.step == 0) return std::nullopt;
  double sum = 0;
  double weight = 0;
  for (const RollCallRecord& record : table) {
    sum += record.loss.sum;
    weight += record.loss.weight;
  }
  const double mean = weight > 0 ? sum / weight : sum;  // without loss terms both are 0
  RETURN_IF_ERROR(CheckLosses(table, mean));
  return StepLoss{table[0].loss.step, mean};
}

}  // namespace

absl::StatusOr<RollCallPlan> Decide(const std::vector<RollCallRecord>& table,
                                    const DecideOptions& options) {
  RollCallPlan plan;
  RETURN_IF_ERROR(CheckMasks(table, options.names, &plan.masks_differ));
  RETURN_IF_ERROR(CheckAgreement(table));
  plan.collectives_differ = std::any_of(
      table.begin(), table.end(),
      [&](const RollCallRecord& record) { return record.collectives != table[0].collectives; });
  if (plan.collectives_differ) return plan;
  ASSIGN_OR_RETURN(plan.loss, MeanLoss(table));
  plan.apply_commands = table[0].newest_command;
  std::vector<RankInput> inputs;
  for (const RollCallRecord& record : table) {
    plan.apply_commands = std::min(plan.apply_commands, record.newest_command);
    plan.preempted |= record.preempted;
    plan.unused_news |= record.unused_news;
    inputs.push_back(record.input);
  }
  plan.inputs = PlanInputs(inputs, options.uneven_inputs, options.full_micro_batches);
  return plan;
}

}  // namespace muster::train
