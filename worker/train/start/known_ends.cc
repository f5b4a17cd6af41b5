#include "worker/train/start/known_ends.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"
#include "worker/train/ranks/failure.h"

namespace muster::train {
namespace {

int64_t Steps(int64_t samples, int64_t in_a_step) { return (samples + in_a_step - 1) / in_a_step; }

// Whether the last step of `samples` samples of the common data has a micro-batch of one sample.
// `samples`: an epoch or the rest of an epoch.
bool EndsWithOne(const Division& division, int64_t samples) {
  const int64_t per_rank = division.batch.per_rank;
  const int64_t all = division.world_size * division.batch.accumulate;
  const int64_t rest = samples % (all * per_rank);
  if (rest % per_rank != 1) return false;
  return !division.batch.uneven_inputs.stop_at_first || Steps(rest, per_rank) == all;
}

std::optional<int64_t> OfCommonData(const Division& division, const data::Position& position) {
  const int64_t in_a_step =
      division.world_size * division.batch.accumulate * division.batch.per_rank;
  const int64_t left = division.size - position.cursor;
  if (EndsWithOne(division, left)) return Steps(left, in_a_step);
  if (!EndsWithOne(division, division.size)) return std::nullopt;
  return Steps(left, in_a_step) + Steps(division.size, in_a_step);
}

std::optional<int64_t> OfOwnData(const Division& division, const data::Position& position) {
  const int64_t per_rank = division.batch.per_rank;
  const int64_t in_a_step = division.batch.accumulate * per_rank;
  const int64_t place = position.cursor / division.world_size;
  const int64_t longest =
      *std::max_element(division.own_sizes.begin(), division.own_sizes.end());
  const int64_t shortest =
      *std::min_element(division.own_sizes.begin(), division.own_sizes.end());
  std::optional<int64_t> first;
  for (const int64_t size : division.own_sizes) {
    const int64_t left = std::max<int64_t>(size - place, 0);
    int64_t step = 0;
    if (left % per_rank == 1) {
      step = Steps(left, in_a_step);
    } else if (size % per_rank == 1) {
      step = Steps(std::max<int64_t>(longest - place, 0), in_a_step) + Steps(size, in_a_step);
    }
    // With stop_at_first, training ends with the shortest file.
    const bool done = !division.batch.uneven_inputs.stop_at_first ||
                      Steps(size, per_rank) == Steps(shortest, per_rank);
    if (step > 0 && done) first = std::min(first.value_or(step), step);
  }
  return first;
}

}  // namespace

std::optional<int64_t> FirstSingleSample(const Division& division, const data::Position& position) {
  if (division.batch.per_rank == 1) return 1;
  if (division.batch.last != data::Last::kUneven) return std::nullopt;
  return division.own_sizes.empty() ? OfCommonData(division, position)
                                    : OfOwnData(division, position);
}

bool NeedsTwoSamples(const v1::ModelSpec& model) {
  if (!model.has_convnet() || model.convnet().inputs_size() != 3) return false;
  uint64_t height = model.convnet().inputs(1);
  uint64_t width = model.convnet().inputs(2);
  for (int stage = 1; stage < model.convnet().widths_size(); ++stage) {
    height = (height + 1) / 2;
    width = (width + 1) / 2;
  }
  return height == 1 && width == 1;
}

bool ValidationCanStillMakeBest(const std::vector<PlannedStage>& stages, int64_t step, bool due) {
  return std::any_of(stages.begin(), stages.end(), [step, due](const PlannedStage& stage) {
    const auto* fit = std::get_if<FitUntil>(&stage.what);
    if (fit == nullptr || !fit->passes.keep_best.has_value()) return false;
    const bool now = due && step > fit->begin && step <= fit->end;
    return now || fit->validate.LastUpTo(fit->end) > std::max(step, fit->begin);
  });
}

absl::Status SingleSampleError(const std::string& model, const Division& division, int64_t step) {
  const bool own = !division.own_sizes.empty();
  const std::string data =
      own ? "a file for each rank" : absl::StrCat(division.size, " samples");
  return absl::InvalidArgumentError(absl::StrCat(
      "batch: found ", data, ", world_size ", division.world_size, ", per_rank ",
      division.batch.per_rank, " and accumulate ", division.batch.accumulate, ": in step ", step,
      " from here some rank has a micro-batch of one sample, with which ", model,
      " cannot train; allowed: batch.last drop or pad, or a per_rank with which no single sample "
      "is left"));
}

absl::Status CheckStepsAreLeft(const std::vector<PlannedStage>& stages, int64_t step,
                               const std::string& checkpoint) {
  if (TotalSteps(stages) > step) return absl::OkStatus();
  return WithCause(
      absl::InvalidArgumentError(absl::StrCat(
          "start.checkpoint: found ", checkpoint, ", which is of step ", step,
          ", and the fit stages have ", TotalSteps(stages),
          " steps, in which those of the other job count: nothing would be trained; allowed: more "
          "than ",
          step, " steps in all, or start.what: weights, which begins at step 0")),
      Cause::kStartDoesNotFit);
}

absl::Status CheckBest(const std::optional<ExportConfig>& weights_export,
                       const std::vector<PlannedStage>& stages, int64_t step, bool due) {
  const bool best =
      weights_export.has_value() && weights_export->from == ExportConfig::From::kBest;
  if (!best || ValidationCanStillMakeBest(stages, step, due)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "export.from: found best, but between step ", step, " and the last step, ",
      TotalSteps(stages),
      ", no stage fit with keep_best has a validation pass (validate_every), so that no checkpoint "
      "would be the best one; allowed: last, or passes that come before the end"));
}

}  // namespace muster::train
