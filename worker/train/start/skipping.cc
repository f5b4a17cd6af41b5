#include "worker/train/start/skipping.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/manifest/sampling_record.h"
#include "worker/train/start/continuation.h"
#include "worker/train/start/known_ends.h"

namespace muster::train {
namespace {

// The last epoch that a checkpoint can store.
constexpr int64_t kLastEpoch = int64_t{1} << 50;

// The skipped samples: the first place, the last place, and the number of samples.
struct Places {
  data::Position first;
  data::Position last;
  int64_t samples = 0;
};

int64_t RoundUp(int64_t number, int64_t multiple) {
  return (number + multiple - 1) / multiple * multiple;
}

Places PlacesOf(const data::Pace& pace, data::Position first, int64_t samples, int64_t together) {
  if (pace.last != data::Last::kUneven) {
    samples = RoundUp(samples, together);
    return {first, pace.PlaceOf(first, samples - 1), samples};
  }
  // Whole steps, so that the samples of later steps do not change: no rank runs out of input
  // earlier, and no micro-batch becomes smaller.
  const int64_t batch = pace.global_batch;
  const data::Position next = pace.Ahead(first, RoundUp(samples, batch) / batch);
  const int64_t epochs = next.epoch - first.epoch;
  return {
      first, {next.epoch, next.cursor - 1}, epochs * pace.epoch_size + next.cursor - first.cursor};
}

}  // namespace

absl::StatusOr<v1::SkippedData> SkipSamples(const SkipDependencies& deps, int64_t samples,
                                            bool dry_run) {
  SessionState& state = *deps.session_state;
  const data::Pace& pace = deps.sampler->pace();
  const Places skip = PlacesOf(pace, pace.Begin(state.position), samples, deps.together);
  const data::Position& first = skip.first;
  const data::Position& last = skip.last;
  const data::Position next{last.epoch, last.cursor + 1};

  std::vector<manifest::SamplingRecord> sampling = state.sampling;
  manifest::SamplingRecord record = sampling.back();
  record.step = state.step;
  record.epoch = next.epoch;
  record.cursor = next.cursor;
  record.skipped = true;
  sampling.push_back(record);
  std::vector<PlannedStage> stages =
      PlanStages(deps.job->stages, TimelineOf(sampling), state.validations.ended);
  const auto stage = FitOfStep(*deps.stages, state.step + 1);
  const bool left = stage.has_value() && next.epoch <= kLastEpoch &&
                    std::get<FitUntil>(stages[stage->stage].what).end > state.step;
  if (!left) {
    return absl::FailedPreconditionError(
        absl::StrCat("without the next ", samples,
                     " samples, no step of this stage is left after "
                     "step ",
                     state.step, "; leave out fewer, or stop the job"));
  }
  if (!state.validations.best.has_value()) {
    const absl::Status best =
        CheckBest(deps.job->weights_export, stages, state.step, state.validation_due);
    if (!best.ok()) return absl::FailedPreconditionError(best.message());
  }
  v1::SkippedData skipped;
  skipped.set_step(state.step);
  skipped.set_samples(skip.samples);
  skipped.set_first_epoch(first.epoch);
  skipped.set_first(first.cursor);
  skipped.set_last_epoch(last.epoch);
  skipped.set_last(last.cursor);
  if (dry_run) return skipped;
  state.position = next;
  state.sampling = std::move(sampling);
  *deps.stages = std::move(stages);
  if (CountsInEpochs(deps.job->stages)) {
    deps.job->schedule = deps.written;
    optim::EndAt(ScheduledSteps(*deps.stages), &deps.job->schedule);
  }
  return skipped;
}

}  // namespace muster::train
