#include "worker/train/session.h"

#include <chrono>
#include <cmath>
#include <deque>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/checkpoint/weights.h"
#include "worker/models/seed.h"
#include "worker/train/autocast.h"
#include "worker/train/checkpoints.h"
#include "worker/train/evaluate.h"
#include "worker/train/finite.h"
#include "worker/train/guarded.h"
#include "worker/train/profile.h"
#include "worker/train/rank_data.h"
#include "worker/train/roll_call.h"
#include "worker/train/setup.h"
#include "worker/train/stages.h"
#include "worker/train/step.h"

namespace muster::train {
namespace {

// A scale of 65536 is halved to 2^-84 by so many: what is left then is no overflow.
constexpr int64_t kMostSkippedInARow = 100;

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::optional<int64_t> TokensOf(const models::Model& model, int64_t samples) {
  const models::InputSpec input = model.Input();
  if (input.kind != models::InputSpec::Kind::kTokens) return std::nullopt;
  return samples * input.context;
}

// Of a step over so many samples: a backward takes twice what its forward does.
std::optional<double> ModelFlopsOf(const models::Model& model, int64_t samples) {
  const double forward = model.ForwardFlops();
  if (forward <= 0) return std::nullopt;
  return 3 * forward * static_cast<double>(samples);
}

class SessionImpl : public Session {
 public:
  SessionImpl(const Identity& identity, const Job& job, const SessionParts& parts)
      : identity_(identity),
        job_(job),
        profile_(job.profile, identity),
        parts_(profile_.Trace(parts)),
        roll_call_(parts_.control),
        context_(std::make_unique<models::ForwardContext>(models::Mode::kTrain,
                                                          models::MakeGenerator(job.seed))) {}

  absl::Status Build();
  absl::StatusOr<SessionEnd> Run() override {
    return Guarded("training", [this] { return RunStages(); });
  }

 private:
  absl::Status BuildTraining();
  // The strategy, and its context.
  absl::Status ShareModel();
  absl::StatusOr<SessionEnd> RunStages();
  absl::Status Fit(const FitUntil& stage);
  // What is due after a step: nothing, or work and then the plan of the next step.
  absl::StatusOr<std::optional<RollCallPlan>> AtBoundary(const FitUntil& stage);
  // The model's own code between two steps.
  absl::Status BeforeStep();
  absl::Status Step(const RollCallPlan& plan);
  // OUT_OF_RANGE once so many steps in a row were skipped that no more of them will help.
  absl::Status CheckSkips();
  // The stage, and the pass itself.
  absl::Status ValidateOnce();
  absl::Status Validate();
  absl::Status Save();
  absl::Status Export();
  // Waits until this rank has all parameters as they are after the last step.
  absl::Status AwaitParameters();

  // What this rank says of the step after `step` done ones, which begins at `position`.
  RollCallRecord Record(int64_t step, const data::Position& position) const;
  // The overlapped call for the step after the one that begins now.
  void PostNext();
  absl::StatusOr<RollCallPlan> AwaitNext();
  // A blocking call for the step that comes now.
  absl::StatusOr<RollCallPlan> CallNow();
  void ReportLoss(const RollCallPlan& plan);
  // Applies the commands up to `number`; true when there were any.
  absl::StatusOr<bool> ApplyCommands(int64_t number);

  bool leader() const { return identity_.rank == 0; }
  void Report(const Event& event) {
    if (leader()) parts_.events->Report(event);
  }
  void Progress(const char* doing) { parts_.events->Progress(step_, stage_, doing); }

  const Identity identity_;
  const Job job_;
  Profile profile_;
  const SessionParts parts_;

  RollCall roll_call_;
  std::unique_ptr<models::Model> model_;
  models::DeferredValues deferred_;  // of its parameters, while it is set up
  std::optional<FiniteCheck> finite_;
  std::optional<RankData> validate_data_;
  checkpoint::State state_;
  std::unique_ptr<Checkpoints> checkpoints_;
  int64_t fingerprint_ = 0;

  // Only in jobs that have a fit stage.
  std::optional<RankData> train_data_;
  std::optional<data::Sampler> sampler_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::LossScaler> scaler_;  // only with float16
  std::optional<Stepper> stepper_;

  // Also in jobs without, where the model lies in shards.
  std::unique_ptr<parallel::Strategy> strategy_;
  std::unique_ptr<models::ForwardContext> context_;  // of the strategy where there is one

  const char* stage_ = "";
  int64_t step_ = 0;         // optimizer steps done
  data::Position position_;  // what they consumed
  int64_t saved_step_ = 0;
  int64_t applied_command_ = 0;
  bool stopped_ = false;
  int64_t attempt_ = 0;

  // Losses of the newest finished step on this rank.
  int64_t loss_step_ = 0;
  double loss_sum_ = 0;
  Outcome outcome_ = Outcome::kApplied;  // of that step
  int64_t skipped_in_a_row_ = 0;         // in this session
  // Finished steps whose mean loss over all ranks is not known yet, oldest first.
  std::deque<StepFinished> unreported_;
};

absl::Status SessionImpl::Build() {
  Progress("loading");
  const bool trains = TotalSteps(job_.stages) > 0;
  // Then no rank ever holds the whole model.
  const bool in_shards = std::holds_alternative<parallel::FsdpOptions>(job_.strategy);
  ASSIGN_OR_RETURN(model_, BuildModel(job_, in_shards ? &deferred_ : nullptr));
  finite_.emplace(*model_);
  if (job_.validate.has_value()) {
    ASSIGN_OR_RETURN(validate_data_, OpenRankData("data.validate", *job_.validate, model_->Input(),
                                                  *parts_.control));
  }
  if (trains) {
    RETURN_IF_ERROR(BuildTraining());
  } else if (in_shards) {
    RETURN_IF_ERROR(ApplyRules({{.freeze = true, .pattern = "*"}}, *model_));  // no gradients
    RETURN_IF_ERROR(ShareModel());
  }
  deferred_ = {};  // and the weights file with it
  fingerprint_ = PlanFingerprint(job_, *model_, strategy_.get(),
                                 train_data_ ? &*train_data_ : nullptr,
                                 validate_data_ ? &*validate_data_ : nullptr);
  state_ = TrainingState(*model_, {strategy_.get(), optimizer_.get(), scaler_ ? &*scaler_ : nullptr},
                         parts_.control->world_size());

  std::string started_from;
  if (job_.checkpoint.has_value()) {
    ASSIGN_OR_RETURN(checkpoints_,
                     Checkpoints::Open(identity_, *job_.checkpoint, StrategyName(job_.strategy),
                                       job_.model.kind, parts_.control, parts_.events));
    ASSIGN_OR_RETURN(const auto restored, checkpoints_->Restore(parts_.checkpoints, state_));
    step_ = saved_step_ = restored.point.step;
    position_ = {restored.point.epoch, restored.point.cursor};
    applied_command_ = restored.point.last_command;
    started_from = restored.path;
  }
  RETURN_IF_ERROR(CallNow().status());  // every rank is as far, and has the same plan
  parts_.events->Report(SessionStarted{step_, started_from});
  return absl::OkStatus();
}

absl::Status SessionImpl::BuildTraining() {
  ASSIGN_OR_RETURN(train_data_, OpenRankData("data.train", *job_.train, model_->Input(),
                                             *parts_.control));
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
  RETURN_IF_ERROR(ShareModel());
  ASSIGN_OR_RETURN(const auto recomputed, RecomputedUnits(job_, *model_));
  context_->Recompute(recomputed);
  ASSIGN_OR_RETURN(optimizer_, BuildOptimizer(*job_.optimizer, *model_, strategy_->pieces()));
  if (job_.precision == Precision::kFloat16) scaler_.emplace(job_.loss_scale);
  stepper_.emplace(Stepper::Parts{&job_, identity_.rank, model_.get(), context_.get(),
                                  train_data_->dataset.get(), &*sampler_, strategy_.get(),
                                  optimizer_.get(), scaler_ ? &*scaler_ : nullptr, &*finite_,
                                  profile_.recorder()});
  return absl::OkStatus();
}

absl::Status SessionImpl::ShareModel() {
  ASSIGN_OR_RETURN(strategy_, BuildStrategy(job_, *model_, parts_.gradients, profile_.recorder(),
                                            &deferred_));
  context_ = strategy_->MakeContext(models::Mode::kTrain, models::MakeGenerator(job_.seed));
  return absl::OkStatus();
}

absl::StatusOr<SessionEnd> SessionImpl::RunStages() {
  for (const PlannedStage& stage : RemainingStages(job_.stages, step_)) {
    const auto* fit = std::get_if<FitUntil>(&stage);
    stage_ = fit != nullptr ? "fit" : "validate";
    Report(StageStarted{stage_, step_});
    RETURN_IF_ERROR(fit != nullptr ? Fit(*fit) : ValidateOnce());
    if (stopped_) break;
  }
  if (!stopped_) RETURN_IF_ERROR(Export());
  return SessionEnd{step_, stopped_};
}

absl::Status SessionImpl::Fit(const FitUntil& stage) {
  ASSIGN_OR_RETURN(RollCallPlan plan, CallNow());
  while (step_ < stage.end) {
    ASSIGN_OR_RETURN(const bool applied, ApplyCommands(plan.apply_commands));
    if (stopped_) return absl::OkStatus();
    if (applied) {
      ASSIGN_OR_RETURN(plan, CallNow());
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    profile_.BeginStep(step_ + 1);
    RETURN_IF_ERROR(BeforeStep());
    PostNext();
    RETURN_IF_ERROR(Step(plan));
    ASSIGN_OR_RETURN(plan, AwaitNext());
    // All that a step costs, the roll call too. It is not reported yet: its loss travels in the next call.
    unreported_.back().seconds = Seconds(std::chrono::steady_clock::now() - start);
    RETURN_IF_ERROR(profile_.EndStep(step_));
    ASSIGN_OR_RETURN(const auto boundary_plan, AtBoundary(stage));
    if (boundary_plan.has_value()) plan = *boundary_plan;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RollCallPlan>> SessionImpl::AtBoundary(const FitUntil& stage) {
  const bool end = step_ == stage.end;
  const bool validate =
      stage.validate_every > 0 && (step_ - stage.begin) % stage.validate_every == 0;
  const bool save =
      checkpoints_ != nullptr &&
      (end || (job_.checkpoint->every_steps > 0 && step_ % job_.checkpoint->every_steps == 0));
  const bool work = end || validate || save;
  if (!work && outcome_ == Outcome::kApplied) return std::nullopt;
  // Says of this step that training may go on from it: its loss is finite on every rank, or it was left out.
  ASSIGN_OR_RETURN(const RollCallPlan plan, CallNow());
  if (!work) return plan;
  if (validate) RETURN_IF_ERROR(Validate());
  if (save) RETURN_IF_ERROR(Save());
  return CallNow();
}

absl::Status SessionImpl::AwaitParameters() {
  return strategy_ == nullptr ? absl::OkStatus() : strategy_->AwaitParameters();
}

absl::Status SessionImpl::BeforeStep() {
  if (!model_->HasStepHook()) return absl::OkStatus();
  std::vector<size_t> all(model_->Parameters().size());
  std::iota(all.begin(), all.end(), 0);
  RETURN_IF_ERROR(strategy_->GatherParameters(all));
  RETURN_IF_ERROR(Annotate(model_->BeforeStep(step_ + 1),
                           absl::StrCat("rank ", identity_.rank, ", before step ", step_ + 1)));
  strategy_->ReleaseParameters();
  return absl::OkStatus();
}

absl::Status SessionImpl::Step(const RollCallPlan& plan) {
  Progress("training");
  ASSIGN_OR_RETURN(const StepResult result, stepper_->Run(step_ + 1, position_, plan.divisor));
  position_ = sampler_->After(position_);
  ++step_;
  loss_step_ = step_;
  loss_sum_ = result.loss_sum;
  outcome_ = result.outcome;
  unreported_.push_back({.step = step_,
                         .learning_rate = result.learning_rate,
                         .grad_norm = result.grad_norm,
                         .samples = plan.samples,
                         .skipped = outcome_ != Outcome::kApplied,
                         .loss_scale = result.loss_scale,
                         .tokens = TokensOf(*model_, plan.samples),
                         .model_flops = ModelFlopsOf(*model_, plan.samples)});
  return CheckSkips();
}

absl::Status SessionImpl::CheckSkips() {
  skipped_in_a_row_ = outcome_ == Outcome::kApplied ? 0 : skipped_in_a_row_ + 1;
  if (skipped_in_a_row_ < kMostSkippedInARow) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      "all steps from ", step_ - skipped_in_a_row_ + 1, " to ", step_,
      " were skipped, because a loss, a gradient or a buffer was not finite in each; look at the learning rate, "
      "the initial values, and the data of these steps"));
}

absl::Status SessionImpl::ValidateOnce() {
  ASSIGN_OR_RETURN(const RollCallPlan plan, CallNow());
  RETURN_IF_ERROR(ApplyCommands(plan.apply_commands).status());
  return stopped_ ? absl::OkStatus() : Validate();
}

absl::Status SessionImpl::Validate() {
  Progress("validating");
  RETURN_IF_ERROR(AwaitParameters());
  const AutocastScope autocast(job_.precision);
  ASSIGN_OR_RETURN(const EvaluationResult result,
                   Evaluate(*validate_data_, job_.batch.per_rank, step_, *model_, *context_,
                            *parts_.control));
  Validated validated{.step = step_,
                      .loss = result.loss,
                      .samples = result.samples,
                      .accuracy = result.accuracy};
  if (model_->HasPerplexity()) validated.perplexity = std::exp(result.loss);
  Report(validated);
  return absl::OkStatus();
}

absl::Status SessionImpl::Save() {
  if (saved_step_ == step_) return absl::OkStatus();
  Progress("saving a checkpoint");
  RETURN_IF_ERROR(AwaitParameters());
  RETURN_IF_ERROR(finite_->Check(step_, strategy_.get()));
  RETURN_IF_ERROR(strategy_->VerifyParametersEqual(step_));
  ASSIGN_OR_RETURN(const bool saved, checkpoints_->Save({.step = step_,
                                                         .last_command = applied_command_,
                                                         .epoch = position_.epoch,
                                                         .cursor = position_.cursor},
                                                        state_));
  if (saved) saved_step_ = step_;
  return absl::OkStatus();
}

absl::Status SessionImpl::Export() {
  if (job_.export_path.empty()) return absl::OkStatus();
  Progress("exporting the weights");
  RETURN_IF_ERROR(AwaitParameters());
  RETURN_IF_ERROR(finite_->Check(step_, strategy_.get()));
  const auto gather = [this](size_t parameter) {
    return strategy_ == nullptr ? absl::OkStatus() : strategy_->GatherParameters({parameter});
  };
  if (leader()) {
    RETURN_IF_ERROR(
        Annotate(checkpoint::ExportModel(job_.export_path, *model_, gather), "export.path"));
    Report(Exported{job_.export_path});
  } else {
    const size_t parameters = model_->Parameters().size();
    for (size_t i = 0; i < parameters; ++i) RETURN_IF_ERROR(gather(i));
  }
  if (strategy_ != nullptr) strategy_->ReleaseParameters();
  return CallNow().status();  // nobody is done before the weights are there
}

absl::StatusOr<bool> SessionImpl::ApplyCommands(int64_t number) {
  if (number <= applied_command_) return false;
  while (applied_command_ < number) {
    const Command command = parts_.commands->Get(applied_command_ + 1);
    ++applied_command_;
    if (std::holds_alternative<StopCommand>(command)) {
      RETURN_IF_ERROR(CallNow().status());
      if (checkpoints_ != nullptr && optimizer_ != nullptr && step_ > 0) RETURN_IF_ERROR(Save());
      stopped_ = true;
    }
    Report(CommandApplied{applied_command_, step_});
  }
  return true;
}

RollCallRecord SessionImpl::Record(int64_t step, const data::Position& position) const {
  const int64_t micro_batches = optimizer_ == nullptr ? 0 : job_.batch.accumulate;
  return {.generation = identity_.generation,
          .step = step + 1,
          .attempt = attempt_,
          .epoch = position.epoch,
          .cursor = position.cursor,
          .micro_batches = micro_batches,
          .samples = micro_batches * job_.batch.per_rank,
          .newest_command = parts_.commands->Newest(),
          .plan_fingerprint = fingerprint_,
          .loss_step = loss_step_,
          .loss_sum = loss_sum_,
          .loss_micro_batches = micro_batches,
          .loss_outcome = static_cast<int64_t>(outcome_)};
}

void SessionImpl::PostNext() {
  attempt_ = 0;
  roll_call_.Post(Record(step_ + 1, sampler_->After(position_)));
}

absl::StatusOr<RollCallPlan> SessionImpl::AwaitNext() {
  ASSIGN_OR_RETURN(const RollCallPlan plan, roll_call_.Await());
  ReportLoss(plan);
  return plan;
}

absl::StatusOr<RollCallPlan> SessionImpl::CallNow() {
  ++attempt_;
  roll_call_.Post(Record(step_, position_));
  return AwaitNext();
}

void SessionImpl::ReportLoss(const RollCallPlan& plan) {
  if (!plan.loss.has_value()) return;
  while (!unreported_.empty() && unreported_.front().step <= plan.loss->step) {
    StepFinished finished = unreported_.front();
    unreported_.pop_front();
    if (finished.step == plan.loss->step) finished.loss = plan.loss->mean;
    if (model_->HasPerplexity()) finished.perplexity = std::exp(finished.loss);
    Report(finished);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Create(const Identity& identity, const Job& job,
                                                         const SessionParts& parts) {
  auto session = std::make_unique<SessionImpl>(identity, job, parts);
  RETURN_IF_ERROR(Guarded("set-up", [&session] { return session->Build(); }));
  return session;
}

}  // namespace muster::train
