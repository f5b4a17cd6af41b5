// Builds all parts of a session.
#include <spdlog/spdlog.h>

#include <bit>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/jobspec/inputs.h"
#include "common/jobspec/jobspec.h"
#include "common/jobspec/lines.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/load_weights.h"
#include "worker/device/peak_flops.h"
#include "worker/optim/schedule.h"
#include "worker/train/data/data_notices.h"
#include "worker/train/data/row_shape.h"
#include "worker/train/data/tokenizer_of_job.h"
#include "worker/train/ranks/agreed_status.h"
#include "worker/train/ranks/agreement.h"
#include "worker/train/session/session_impl.h"
#include "worker/train/start/continuation.h"
#include "worker/train/training/model_records.h"

namespace muster::train {
namespace {

// A checkpoint waits at most this long for the reports before it.
constexpr absl::Duration kSettle = absl::Seconds(1);

// The setting, for messages.
constexpr char kWeights[] = "model.weights";

// What all ranks must find in the weights file.
std::vector<jobspec::Line> LinesOf(const checkpoint::WeightsReport& report) {
  std::vector<jobspec::Line> lines;
  for (const std::string& name : report.taken) lines.push_back({absl::CEscape(name), "taken"});
  for (const std::string& name : report.initial) lines.push_back({absl::CEscape(name), "initial"});
  return lines;
}

void Sleep(absl::Duration duration) {
  std::this_thread::sleep_for(absl::ToChronoMilliseconds(duration));
}

}  // namespace

SessionImpl::SessionImpl(const Identity& identity, const Job& job, const SessionParts& parts)
    : identity_(identity),
      job_(job),
      flight_(parts.flight != nullptr ? parts.flight : &own_flight_),
      control_(comm::Recorded(parts.control, flight_, 0)),
      gradients_(comm::Recorded(parts.gradients, flight_, 1)),
      parameters_(comm::Recorded(parts.parameters, flight_, 2)),
      files_(comm::Recorded(parts.files, flight_, comm::FlightRecorder::kBackground)),
      profile_(job.profile, identity),
      parts_(profile_.Trace(WithRecorded(parts))),
      reports_(identity.rank, parts.events, &session_state_),
      attempts_(parts.save_retry, &reports_, Sleep),
      roll_call_({.identity = identity_,
                  .control = parts_.control,
                  .flight = flight_,
                  .commands = parts_.commands,
                  .lease = parts_.lease,
                  .session_state = &session_state_,
                  .reports = &reports_}),
      plain_context_(std::make_unique<models::ForwardContext>(
          models::Mode::kTrain, models::MakeGenerator(job.seed, device()))),
      writing_(parts.writing != nullptr ? parts.writing : &own_writing_),
      disk_(writing_),
      passes_({.job = &job_,
               .device = device(),
               .control = parts_.control,
               .background = &background_,
               .reports = &reports_,
               .session_state = &session_state_}),
      background_(files_.get(), &reports_) {}

SessionParts SessionImpl::WithRecorded(SessionParts parts) const {
  parts.control = control_.get();
  parts.gradients = gradients_.get();
  parts.parameters = parameters_.get();
  parts.files = files_.get();
  return parts;
}

data::Emptiness SessionImpl::emptiness() const {
  const bool joins = job_.batch.last == data::Last::kUneven && !job_.uneven_inputs.stop_at_first;
  return joins ? data::Emptiness::kAllowed : data::Emptiness::kRefused;
}

absl::Status SessionImpl::Build() {
  reports_.Progress("loading");
  RETURN_IF_ERROR(AgreeOn("the job", jobspec::LinesOf(job_.spec), parts_.control));
  RETURN_IF_ERROR(background_.CountRanksOfNode());
  if (job_.weights_export.has_value()) {
    export_.emplace(WeightsExport::Parts{identity_, *job_.weights_export, parts_.control,
                                         communicators(), parts_.export_gate, parts_.lease,
                                         &attempts_, &session_state_, &reports_,
                                         jobspec::InputFiles(job_.spec), &tokenizer_});
    RETURN_IF_ERROR(export_->Prepare());
  }
  RETURN_IF_ERROR(BuildModel());
  if (export_.has_value()) RETURN_IF_ERROR(export_->PrepareConfig(*model_));
  RETURN_IF_ERROR(OpenEvaluationData());
  const bool fits = AnyFit(job_.stages);
  if (fits) RETURN_IF_ERROR(OpenTrainData());
  RETURN_IF_ERROR(FindTokenizer());
  RETURN_IF_ERROR(AgreeOnData());
  if (fits) RETURN_IF_ERROR(MakeSampler());
  RETURN_IF_ERROR(CheckMetrics());
  RETURN_IF_ERROR(fits ? BuildTraining() : BuildShards());
  RETURN_IF_ERROR(CheckWeights());
  deferred_ = {};  // this also closes the weights file
  if (strategy() != nullptr) {
    roll_call_.SetLayout(std::bit_cast<int64_t>(strategy()->layout_fingerprint()));
  }
  std::string started_from;
  if (job_.checkpoint.has_value()) {
    ASSIGN_OR_RETURN(started_from, OpenCheckpoints());
  }
  const bool went_on = !started_from.empty();
  if (!went_on) {
    ASSIGN_OR_RETURN(started_from, StartFromOther());
  }
  if (started_from.empty() && trains()) RETURN_IF_ERROR(ImportOptimizerState());
  RETURN_IF_ERROR(PlanSteps(went_on));
  RETURN_IF_ERROR(FindBest());
  RETURN_IF_ERROR(CheckKnownEnds(started_from));
  RETURN_IF_ERROR(PreparePredictions());
  commands_.emplace(Commands::Parts{.source = parts_.commands,
                                    .effects = this,
                                    .learning_rates = &job_.schedule,
                                    .schedule = &schedule_,
                                    .session_state = &session_state_,
                                    .reports = &reports_});
  RETURN_IF_ERROR(CallNow().status());  // every rank has come this far and has the same plan
  reports_.ReportOfRank(SessionStarted{session_state_.step, started_from,
                                       schedule_.position().taken, TotalSteps(stages_)});
  commands_->TellUnreported();
  if (changes_.has_value()) changes_->ReportInForce();
  return absl::OkStatus();
}

absl::Status SessionImpl::BuildModel() {
  ASSIGN_OR_RETURN(model_, train::BuildModel(job_, in_shards() ? &deferred_ : nullptr, &weights_));
  if (reports_.leader() && !deferred_.refusal().empty()) {
    const std::string text = absl::StrCat(
        "the model is made whole on every rank before it is sharded: ", deferred_.refusal());
    spdlog::warn("model: {}", text);
    reports_.Report(Notice{"MODEL_MADE_WHOLE", text, session_state_.step});
  }
  MoveTo(device(), *model_, in_shards() ? Moved::kBuffers : Moved::kAll);
  RETURN_IF_ERROR(AgreeOn("the model", LinesOf(*model_), parts_.control));
  RETURN_IF_ERROR(AgreeOnWeights());
  auto trained = TrainedParameters::Create(model_->Parameters(), job_.trainable);
  if (!trained.ok()) return Annotate(trained.status(), "trainable.rules");
  trained_ = *std::move(trained);
  roll_call_.SetSubject(
      {.model = model_.get(),
       .trained = trained_.get(),
       .uneven_inputs = job_.uneven_inputs,
       .full_micro_batches = parts_.control->world_size() * job_.batch.accumulate,
       .peak_flops = parts_.control->world_size() *
                     device::PeakFlopsOf(device(), job_.precision != Precision::kFloat32)});
  finite_.emplace(*model_, device());
  return absl::OkStatus();
}

absl::Status SessionImpl::AgreeOnWeights() {
  if (!weights_.has_value()) return absl::OkStatus();
  const checkpoint::WeightsReport& report = weights_->report();
  if (reports_.leader()) {
    if (job_.spec.model().has_weights_from()) {
      spdlog::info("{}: {}", kWeights, Describe(report));
      reports_.Report(Notice{"WEIGHTS_TAKEN", absl::StrCat(kWeights, ": ", Describe(report)),
                             session_state_.step});
    }
    if (!report.other_config.empty()) {
      spdlog::warn("{}: {}", kWeights, report.other_config);
      reports_.Report(Notice{"WEIGHTS_OF_ANOTHER_MODEL",
                             absl::StrCat(kWeights, ": ", report.other_config),
                             session_state_.step});
    }
  }
  // A file that is another one on some node would give the ranks parts of different models.
  return AgreeOn("the weights", LinesOf(report), parts_.control);
}

absl::Status SessionImpl::CheckWeights() {
  if (!weights_.has_value() || !in_shards()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto results,
                   checkpoint::Exchange(*parts_.control, checkpoint::ToResult(weights_->status()),
                                        "what the ranks read of the weights", 0));
  return Annotate(checkpoint::Combine(results), kWeights);
}

std::vector<SessionImpl::NamedData> SessionImpl::OpenedData() const {
  std::vector<NamedData> opened;
  const auto add = [&opened](const char* name, const std::optional<RankData>& data) {
    if (data.has_value()) opened.push_back({name, &*data});
  };
  add("data.train", train_data_);
  add("data.validate", validate_data_);
  add("data.test", test_data_);
  add("data.predict", predict_data_);
  return opened;
}

absl::Status SessionImpl::AgreeOnData() {
  std::vector<jobspec::Line> sizes;
  for (const auto& [name, data] : OpenedData()) {
    ReportNotes(name, *data, identity_.rank, session_state_.step, reports_);
    // The ranks have already exchanged the sizes of their own files.
    if (!data->own_sizes.empty()) continue;
    sizes.push_back({name, absl::StrCat(data->dataset->size(), " samples")});
  }
  return AgreeOn("the data", sizes, parts_.control);
}

absl::Status SessionImpl::OpenTrainData() {
  if (model_->RunsCollectives() && job_.batch.last == data::Last::kUneven) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch.last: found uneven, but the model ", model_->kind(),
                     " runs collectives of its own, in which a rank without input would not take "
                     "part; allowed: drop, pad"));
  }
  ASSIGN_OR_RETURN(train_data_, OpenRankData("data.train", *job_.train, model_->Input(),
                                             emptiness(), *parts_.control));
  return CheckRows("data.train", *train_data_);
}

absl::Status SessionImpl::CheckRows(const char* name, const RankData& data) {
  const at::Tensor blank = data.dataset->Blank(1).inputs;
  const absl::Status mine = CheckRowShape(job_.spec.model(), blank.sizes().slice(1).vec());
  return AgreedStatus(Annotate(mine, name), "the shape of the rows", *parts_.control);
}

absl::Status SessionImpl::OpenEvaluationData() {
  const auto open = [this](const char* name, const std::optional<DataConfig>& config,
                           data::Emptiness emptiness, data::Labels labels,
                           std::optional<RankData>* data) -> absl::Status {
    if (!config.has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(
        *data, OpenRankData(name, *config, model_->Input(), emptiness, *parts_.control, labels));
    return CheckRows(name, **data);
  };
  RETURN_IF_ERROR(
      open("data.validate", job_.validate, emptiness(), data::Labels::kNeeded, &validate_data_));
  RETURN_IF_ERROR(open("data.test", job_.test, emptiness(), data::Labels::kNeeded, &test_data_));
  return open("data.predict", job_.predict, data::Emptiness::kAllowed, data::Labels::kIgnored,
              &predict_data_);
}

absl::Status SessionImpl::FindTokenizer() {
  std::vector<TokenizedSet> sets;
  for (const auto& [name, data] : OpenedData()) sets.push_back({name, data->dataset->tokenizer()});
  ASSIGN_OR_RETURN(tokenizer_, TokenizerOfJob(sets, *parts_.control));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Training>> SessionImpl::MakeTraining() {
  Training::Parts parts{.job = &job_,
                        .rank = identity_.rank,
                        .model = model_.get(),
                        .trained = trained_.get(),
                        .communicators = communicators(),
                        .recorder = profile_.recorder()};
  if (trains()) {
    parts.control = parts_.control;
    parts.dataset = train_data_->dataset.get();
    parts.sampler = &*sampler_;
    parts.finite = &*finite_;
  }
  return Training::Create(parts, in_shards() ? &deferred_ : nullptr);
}

absl::Status SessionImpl::MakeSampler() {
  auto sampler = data::Sampler::Create({.size = train_data_->dataset->size(),
                                        .seed = job_.seed,
                                        .world_size = parts_.control->world_size(),
                                        .per_rank = job_.batch.per_rank,
                                        .accumulate = job_.batch.accumulate,
                                        .order = job_.batch.order,
                                        .last = job_.batch.last,
                                        .own = train_data_->Own(identity_.rank)});
  if (!sampler.ok()) return Annotate(sampler.status(), "batch");
  sampler_.emplace(*std::move(sampler));
  session_state_.sampling = {
      RecordOf(job_, sampler_->pace(), /*per_rank=*/!train_data_->own_sizes.empty())};
  roll_call_.SetInput(&*sampler_, train_data_->dataset->size());
  return absl::OkStatus();
}

absl::Status SessionImpl::PlanSteps(bool went_on) {
  stages_ = Plan();
  if (!CountsInEpochs(job_.stages)) return absl::OkStatus();
  const int64_t total_steps = ScheduledSteps(stages_);
  optim::EndAt(total_steps, &job_.schedule);
  // With other ranks a job that has begun may have fewer steps than it was checked for.
  if (went_on) return absl::OkStatus();
  const v1::SpecProblems problems =
      jobspec::ValidateSteps(job_.spec, static_cast<uint64_t>(total_steps));
  if (problems.problems_size() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the stages have ", total_steps, " steps, ", sampler_->steps_per_epoch(),
                     " in each epoch: ", jobspec::FormatProblems(problems)));
  }
  return absl::OkStatus();
}

absl::Status SessionImpl::BuildTraining() {
  session_state_.learning_rate = job_.optimizer->lr;
  ASSIGN_OR_RETURN(training_, MakeTraining());
  gathering_.emplace(
      Gathering::Parts{.identity = identity_,
                       .inputs = jobspec::InputFiles(job_.spec),
                       .lease = parts_.lease,
                       .learning_rates = &job_.schedule,
                       .session_state = &session_state_,
                       .reports = &reports_,
                       .communicator = parts_.files,
                       .background = &background_,
                       .writing = writing_,
                       .disk = &disk_,
                       .await_weights = [this] { return AwaitWeights(); },
                       .state = [this] { return State(); },
                       .records = [this](const auto& state) { return Records(state); }});
  changes_.emplace(TrainabilityChanges::Parts{.rank = identity_.rank,
                                              .refresh = job_.refresh,
                                              .model = model_.get(),
                                              .trained = trained_.get(),
                                              .training = training_.get(),
                                              .calls = &roll_call_,
                                              .session_state = &session_state_,
                                              .reports = &reports_});
  return absl::OkStatus();
}

absl::Status SessionImpl::BuildShards() {
  if (!in_shards()) return absl::OkStatus();
  trained_->Want(Mask(trained_->in_force().size(), false));  // no gradients
  trained_->BringIntoForce();
  ASSIGN_OR_RETURN(training_, MakeTraining());
  return absl::OkStatus();
}

absl::StatusOr<std::string> SessionImpl::OpenCheckpoints() {
  ASSIGN_OR_RETURN(checkpoints_, Checkpoints::Open(identity_, *job_.checkpoint,
                                                   {.recorded = parts_.checkpoints,
                                                    .retired = parts_.retired_checkpoints,
                                                    .had_others = parts_.had_checkpoints,
                                                    .from_scratch = parts_.from_scratch,
                                                    .start_from = parts_.start_from},
                                                   StrategyName(job_.strategy), model_->kind(),
                                                   parts_.files, parts_.events, disk_));
  checkpoints_->SetStillMine([this] {
    // A generation that starts from this checkpoint does not repeat the steps before it, so their
    // metrics must have been reported.
    parts_.events->Settle(kSettle);
    return parts_.lease == nullptr ? absl::OkStatus() : parts_.lease->StillMine();
  });
  saving_.emplace(
      Saving::Parts{.rank = static_cast<int>(identity_.rank),
                    .generation = identity_.generation,
                    .jobs_rate = job_.optimizer.has_value() ? job_.optimizer->lr : 0,
                    .while_training = job_.checkpoint->background,
                    .background = &background_,
                    .writing = writing_,
                    .checkpoints = checkpoints_.get(),
                    .communicator = parts_.files,
                    .finite = &*finite_,
                    .trained = trained_.get(),
                    .commands = &schedule_,
                    .attempts = &attempts_,
                    .session_state = &session_state_,
                    .reports = &reports_,
                    .strategy = [this]() -> parallel::Strategy& { return *strategy(); },
                    .await_parameters = [this] { return AwaitParameters(); },
                    .state = [this] { return State(); },
                    .records = [this](const checkpoint::State& state) { return Records(state); }});
  const auto began = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const auto restored, checkpoints_->Restore([this](const auto& manifest) {
    return StateFor(manifest);
  }));
  if (!restored.path.empty()) {
    if (reports_.leader()) {
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
      spdlog::info("{}: checked and loaded in {:.3f} s", restored.path, took.count());
    }
    Restore(restored);
    // A later decision than that which the checkpoint has.
    if (restored.generation < parts_.learning_rate_since && job_.optimizer.has_value()) {
      session_state_.learning_rate = job_.optimizer->lr;
    }
    saving_->ResumeFrom(restored);
  }
  return restored.path;
}

absl::StatusOr<checkpoint::ModelRecords> SessionImpl::Records(
    const checkpoint::State& state) const {
  const Mask none(trained_->in_force().size());
  ASSIGN_OR_RETURN(auto records, RecordsOf(job_, *model_, state, session_state_.learning_rate,
                                           trains() ? trained_->in_force() : none,
                                           trains() ? training_->HasState() : none));
  if (records.first_weights.empty()) records.first_weights = first_weights_;
  records.tokenizer = tokenizer_;
  return records;
}

checkpoint::State SessionImpl::State() const {
  return training_ != nullptr ? training_->State()
                              : TrainingState(*model_, {}, parts_.control->world_size());
}

}  // namespace muster::train
