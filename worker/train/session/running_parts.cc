#include "common/jobspec/rules.h"
#include "worker/device/peak_flops.h"
#include "worker/train/session/running.h"

namespace muster::train {
namespace {

const RankData* OrNull(const std::optional<RankData>& data) {
  return data.has_value() ? &*data : nullptr;
}

std::optional<Saving> SavingOf(Loaded* loaded, const CommandSchedule* schedule, LiveState* live,
                               Background* background) {
  const Opened& opened = loaded->opened();
  const Job& job = opened.job;
  if (loaded->checkpoints == nullptr) return std::nullopt;
  return Saving({.rank = static_cast<int>(opened.identity.rank),
                 .generation = opened.identity.generation,
                 .jobs_rate = job.optimizer.has_value() ? job.optimizer->lr : 0,
                 .while_training = job.checkpoint->background,
                 .background = background,
                 .writing = opened.writing,
                 .checkpoints = loaded->checkpoints.get(),
                 .communicator = opened.parts.files,
                 .trained = loaded->agreed->trained.get(),
                 .commands = schedule,
                 .attempts = &opened.attempts,
                 .session_state = &opened.state,
                 .reports = &opened.reports,
                 .source = live,
                 .restored = loaded->restored});
}

}  // namespace

LiveState LiveStateOf(Loaded* loaded) {
  const Opened& opened = loaded->opened();
  return LiveState({.job = &opened.job,
                    .model = loaded->agreed->model.get(),
                    .trained = loaded->agreed->trained.get(),
                    .training = loaded->training.get(),
                    .finite = loaded->agreed->finite.get(),
                    .communicators = opened.communicators(),
                    .session_state = &opened.state,
                    .first_weights = loaded->first_weights,
                    .tokenizer = loaded->tokenizer});
}

RollCalls::RollCalls(Loaded* loaded, const CommandSchedule* schedule, const Background* background)
    : each_step(
          {.identity = loaded->opened().identity,
           .control = loaded->opened().parts.control,
           .flight = loaded->opened().flight,
           .commands = loaded->opened().parts.commands,
           .lease = loaded->opened().parts.lease,
           .session_state = &loaded->opened().state,
           .reports = &loaded->opened().reports,
           .model = loaded->agreed->model.get(),
           .trained = loaded->agreed->trained.get(),
           .training = loaded->training.get(),
           .sampler = loaded->sampler.get(),
           .samples = loaded->trains() ? loaded->agreed->data.train->dataset->size() : 0,
           .uneven_inputs = loaded->opened().job.batch.uneven_inputs,
           .full_micro_batches =
               loaded->opened().world_size() * loaded->opened().job.batch.accumulate,
           .peak_flops =
               loaded->opened().world_size() *
               device::PeakFlopsOf(loaded->opened().device(),
                                   loaded->opened().job.numerics.precision != Precision::kFloat32),
           .mean_tokens = loaded->trains() ? loaded->agreed->data.train->dataset->mean_tokens()
                                           : std::nullopt}),
      between({.roll_call = &each_step,
               .background = background,
               .commands = loaded->opened().parts.commands,
               .schedule = schedule,
               .session_state = &loaded->opened().state,
               .has_checkpoints = loaded->checkpoints != nullptr}) {}

Writers::Writers(Loaded* loaded, const CommandSchedule* schedule, LiveState* live,
                 Background* background)
    : saving(SavingOf(loaded, schedule, live, background)),
      best({.generation = loaded->opened().identity.generation,
            .saving = saving.has_value() ? &*saving : nullptr,
            .checkpoints = loaded->checkpoints.get(),
            .background = background,
            .session_state = &loaded->opened().state}) {
  Opened& opened = loaded->opened();
  if (loaded->trains()) {
    gathering.emplace(Gathering::Dependencies{.identity = opened.identity,
                                              .inputs = jobspec::InputFiles(opened.job.spec),
                                              .lease = opened.parts.lease,
                                              .learning_rates = &opened.job.schedule,
                                              .session_state = &opened.state,
                                              .reports = &opened.reports,
                                              .communicator = opened.parts.files,
                                              .background = background,
                                              .writing = opened.writing,
                                              .disk = &opened.disk,
                                              .source = live});
  }
  if (opened.job.weights_export.has_value()) {
    weights_export.emplace(ExportOf(opened, &loaded->tokenizer));
  }
}

Forwards::Forwards(Loaded* loaded, LiveState* live, Calls* calls, const Background* background)
    : passes({.job = &loaded->opened().job,
              .device = loaded->opened().device(),
              .control = loaded->opened().parts.control,
              .background = background,
              .reports = &loaded->opened().reports,
              .session_state = &loaded->opened().state}),
      parts{.job = &loaded->opened().job,
            .live = live,
            .passes = &passes,
            .control = loaded->opened().parts.control,
            .session_state = &loaded->opened().state,
            .reports = &loaded->opened().reports},
      evaluation(parts, OrNull(loaded->agreed->data.validate), OrNull(loaded->agreed->data.test),
                 calls),
      generator(parts),
      predict{.forward = parts,
              .identity = loaded->opened().identity,
              .requests = loaded->requests,
              .generator = &generator,
              .data = OrNull(loaded->agreed->data.predict),
              .calls = calls,
              .lease = loaded->opened().parts.lease} {}

std::optional<TrainabilityChanges> ChangesOf(Loaded* loaded, SessionRollCall* calls) {
  if (!loaded->trains()) return std::nullopt;
  return TrainabilityChanges({.rank = loaded->opened().identity.rank,
                              .refresh = loaded->opened().job.model.refresh,
                              .model = loaded->agreed->model.get(),
                              .trained = loaded->agreed->trained.get(),
                              .training = loaded->training.get(),
                              .calls = calls,
                              .session_state = &loaded->opened().state,
                              .reports = &loaded->opened().reports});
}

SkipDependencies SkipDependenciesOf(Loaded* loaded) {
  Opened& opened = loaded->opened();
  const bool own_files = !loaded->agreed->data.train->own_sizes.empty();
  return {.job = &opened.job,
          .session_state = &opened.state,
          .stages = &loaded->stages,
          .sampler = loaded->sampler.get(),
          .written = loaded->written_schedule,
          .together = own_files ? opened.world_size() : 1};
}

}  // namespace muster::train
