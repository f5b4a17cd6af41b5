#include "worker/train/start/skipping.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/manifest/sampling_record.h"
#include "worker/train/start/continuation.h"

namespace muster::train {
namespace {

// A checkpoint cannot store a later epoch.
constexpr int64_t kLastEpoch = int64_t{1} << 50;

}  // namespace

absl::StatusOr<v1::SkippedData> Skipping::Skip(int64_t samples, bool dry_run) {
  SessionState& state = *parts_.session_state;
  const data::Pace& pace = parts_.sampler->pace();
  samples = (samples + parts_.together - 1) / parts_.together * parts_.together;
  const data::Position first = pace.Begin(state.position);
  const data::Position last = pace.PlaceOf(first, samples - 1);
  const data::Position next{last.epoch, last.cursor + 1};

  std::vector<manifest::SamplingRecord> sampling = state.sampling;
  manifest::SamplingRecord record = sampling.back();
  record.step = state.step;
  record.epoch = next.epoch;
  record.cursor = next.cursor;
  record.skipped = true;
  sampling.push_back(record);
  std::vector<PlannedStage> stages =
      PlanStages(parts_.job->stages, TimelineOf(sampling), state.validations.ended);
  const auto stage = FitOfStep(*parts_.stages, state.step + 1);
  const bool left = stage.has_value() && next.epoch <= kLastEpoch &&
                    std::get<FitUntil>(stages[stage->stage].what).end > state.step;
  if (!left) {
    return absl::FailedPreconditionError(
        absl::StrCat("without the next ", samples,
                     " samples, no step of this stage is left after "
                     "step ",
                     state.step, "; leave out fewer, or stop the job"));
  }
  v1::SkippedData skipped;
  skipped.set_step(state.step);
  skipped.set_samples(samples);
  skipped.set_first_epoch(first.epoch);
  skipped.set_first(first.cursor);
  skipped.set_last_epoch(last.epoch);
  skipped.set_last(last.cursor);
  if (dry_run) return skipped;
  state.position = next;
  state.sampling = std::move(sampling);
  *parts_.stages = std::move(stages);
  if (CountsInEpochs(parts_.job->stages)) {
    parts_.job->schedule = written_;
    optim::EndAt(ScheduledSteps(*parts_.stages), &parts_.job->schedule);
  }
  return skipped;
}

}  // namespace muster::train
