#include "worker/train/session.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status/status.h"
#include "worker/train/autocast.h"
#include "worker/train/evaluate.h"
#include "worker/train/failure.h"
#include "worker/train/session_impl.h"

namespace muster::train {
namespace {

// A scale of 65536 is halved to 2^-84 by so many: what is left then is no overflow.
constexpr int64_t kMostSkippedInARow = 100;
// Of the last save, and of an export.
constexpr int kAttempts = 3;

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

absl::StatusOr<SessionEnd> SessionImpl::RunStages() {
  if (validation_due_) RETURN_IF_ERROR(ValidateDue());
  for (const PlannedStage& stage : RemainingStages(job_.stages, step_)) {
    if (stopped_) break;
    const auto* fit = std::get_if<FitUntil>(&stage);
    if (fit != nullptr && !ended_early_.empty()) continue;
    stage_ = fit != nullptr ? "fit" : "validate";
    Report(StageStarted{stage_, step_});
    RETURN_IF_ERROR(fit != nullptr ? Fit(*fit) : ValidateOnce());
  }
  if (!stopped_) {
    // Whatever became of the last checkpoint: the weights are worth to be kept.
    const absl::Status exported = Export();
    if (!final_save_.ok() && (exported.ok() || CauseOf(exported) == Cause::kFinalSaveFailed)) {
      const std::string also = exported.ok() ? "" : absl::StrCat("; and ", exported.message());
      return WithCause(absl::Status(final_save_.code(),
                                    absl::StrCat("the checkpoint at the end of training failed: ",
                                                 final_save_.message(), also)),
                       Cause::kFinalSaveFailed);
    }
    RETURN_IF_ERROR(exported);
  }
  return SessionEnd{step_, stopped_ && !preempted_, preempted_, ended_early_};
}

absl::Status SessionImpl::Fit(const FitUntil& stage) {
  ASSIGN_OR_RETURN(RollCallPlan plan, CallNow());
  while (step_ < stage.end) {
    ASSIGN_OR_RETURN(const bool ran_out, RanOut(plan));
    if (ran_out) break;
    if (plan.preempted) return EndHere();
    ASSIGN_OR_RETURN(const bool applied, ApplyCommands(plan.apply_commands));
    if (stopped_) return absl::OkStatus();
    if (applied) {
      ASSIGN_OR_RETURN(plan, CallNow());
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    profile_.BeginStep(step_ + 1);
    // What commands come with the plan of this call wait: a step follows its hook at once.
    ASSIGN_OR_RETURN(const bool changed, LetModelChange());
    if (changed) {
      ASSIGN_OR_RETURN(plan, CallNow());
    }
    PostNext();
    RETURN_IF_ERROR(Step(plan));
    ASSIGN_OR_RETURN(plan, AwaitNext());
    // All that a step costs, the roll call too. It is not reported yet: its loss travels in the
    // next call.
    loss_reports_.SetSeconds(Seconds(std::chrono::steady_clock::now() - start));
    RETURN_IF_ERROR(profile_.EndStep(step_));
    ASSIGN_OR_RETURN(const auto boundary_plan, AtBoundary(stage, plan));
    if (stopped_) return absl::OkStatus();
    if (boundary_plan.has_value()) plan = *boundary_plan;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> SessionImpl::RanOut(const RollCallPlan& plan) {
  if (plan.inputs.ran_out.empty()) return false;
  ended_early_ = absl::StrCat(DescribeRanOut(plan.inputs.ran_out), " after step ", step_,
                              " (uneven_inputs: stop_at_first)");
  if (step_ == 0)
    return absl::FailedPreconditionError(absl::StrCat(ended_early_, ": nothing can be trained"));
  return true;
}

absl::StatusOr<std::optional<RollCallPlan>> SessionImpl::AtBoundary(const FitUntil& stage,
                                                                    const RollCallPlan& next) {
  const bool end = step_ == stage.end || !next.inputs.ran_out.empty();
  const bool validate =
      stage.validate_every > 0 && (step_ - stage.begin) % stage.validate_every == 0;
  const bool save =
      checkpoints_ != nullptr &&
      (end || (job_.checkpoint->every_steps > 0 && step_ % job_.checkpoint->every_steps == 0));
  const bool work = end || validate || save;
  if (!work && outcome_ == Outcome::kApplied) return std::nullopt;
  // Says of this step that training may go on from it: its loss is finite on every rank, or it was
  // left out.
  ASSIGN_OR_RETURN(const RollCallPlan plan, CallNow());
  if (!work) return plan;
  // The job is to leave: what it has computed is saved before a pass that may take long. Whoever
  // goes on from there runs it first. A job without checkpoints comes to this step again, but for
  // its last one: there it is nearly done.
  if (validate && plan.preempted && (checkpoints_ != nullptr || !end)) {
    validation_due_ = true;
    RETURN_IF_ERROR(EndHere());
    return plan;
  }
  if (validate) RETURN_IF_ERROR(Validate());
  if (save) {
    const bool final = end && (!next.inputs.ran_out.empty() || step_ == TotalSteps(job_.stages));
    ASSIGN_OR_RETURN(const SaveResult result, Save(final ? SaveKind::kFinal : SaveKind::kOnTheWay));
    if (final) final_save_ = result.files;
  }
  return CallNow();
}

absl::Status SessionImpl::AwaitParameters() {
  return strategy() == nullptr ? absl::OkStatus() : strategy()->AwaitParameters();
}

absl::Status SessionImpl::RunStepHook() {
  std::vector<size_t> all(model_->Parameters().size());
  std::iota(all.begin(), all.end(), 0);
  RETURN_IF_ERROR(strategy()->GatherParameters(all));
  RETURN_IF_ERROR(Annotate(model_->BeforeStep(step_ + 1),
                           absl::StrCat("rank ", identity_.rank, ", before step ", step_ + 1)));
  strategy()->ReleaseParameters();
  return absl::OkStatus();
}

absl::Status SessionImpl::Step(const RollCallPlan& plan) {
  Progress("training");
  ASSIGN_OR_RETURN(const StepResult result,
                   training_->stepper().Run({step_ + 1, position_, plan.inputs, learning_rate_}));
  position_ = sampler_->After(position_);
  ++step_;
  loss_step_ = step_;
  loss_sum_ = result.loss_sum;
  loss_weight_ = result.loss_weight;
  not_finite_ = result.not_finite;
  outcome_ = result.outcome;
  loss_reports_.Add(step_, result, plan.inputs.samples, *model_);
  return CheckSkips();
}

absl::Status SessionImpl::CheckSkips() {
  skipped_in_a_row_ = outcome_ == Outcome::kApplied ? 0 : skipped_in_a_row_ + 1;
  if (skipped_in_a_row_ < kMostSkippedInARow) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("all steps from ", step_ - skipped_in_a_row_ + 1,
                                            " to ", step_,
                                            " were skipped, because a loss, a gradient or a buffer "
                                            "was not finite in each; look at the learning rate, "
                                            "the initial values, and the data of these steps"));
}

absl::Status SessionImpl::ValidateOnce() {
  ASSIGN_OR_RETURN(const RollCallPlan plan, CallNow());
  if (plan.preempted) return EndHere();
  ASSIGN_OR_RETURN(const bool applied, ApplyCommands(plan.apply_commands));
  if (applied) RETURN_IF_ERROR(CallNow().status());
  return stopped_ ? absl::OkStatus() : Validate();
}

absl::Status SessionImpl::ValidateDue() {
  if (validate_data_.has_value()) {
    stage_ = "validate";
    Report(StageStarted{stage_, step_});
    RETURN_IF_ERROR(ValidateOnce());
  }
  validation_due_ = false;
  return absl::OkStatus();
}

absl::Status SessionImpl::Validate() {
  Progress("validating");
  RETURN_IF_ERROR(AwaitParameters());
  const AutocastScope autocast(job_.precision);
  ASSIGN_OR_RETURN(
      const EvaluationResult result,
      Evaluate(*validate_data_, job_.batch.per_rank, step_, *model_, context(), *parts_.control));
  v1::StepMetrics metrics;
  metrics.set_step(step_);
  v1::Validation& validation = *metrics.mutable_validation();
  validation.set_loss(result.loss);
  validation.set_samples(result.samples);
  if (result.accuracy.has_value()) validation.set_accuracy(*result.accuracy);
  if (model_->HasPerplexity()) validation.set_perplexity(std::exp(result.loss));
  Report(metrics);
  return absl::OkStatus();
}

absl::StatusOr<SessionImpl::SaveResult> SessionImpl::Save(SaveKind kind) {
  // Commands of this step that came after it are done again by whoever goes on from it.
  if (saved_.has_value() && saved_->step == step_) return SaveResult();
  Progress("saving a checkpoint");
  RETURN_IF_ERROR(AwaitParameters());
  RETURN_IF_ERROR(finite_->Check(step_, strategy()));
  RETURN_IF_ERROR(strategy()->VerifyParametersEqual(step_));
  const CommandSchedule::Position commands = schedule_.position();
  checkpoint::SavePoint point{.step = step_,
                              .last_command = commands.taken,
                              .epoch = position_.epoch,
                              .cursor = position_.cursor};
  point.steering.waiting_commands = commands.waiting;
  if (learning_rate_ != job_.optimizer->lr) point.steering.learning_rate = learning_rate_;
  point.steering.trainability_version = trainability_->version();
  point.steering.rules = trainability_->rules();
  point.steering.pending = PendingNames();
  point.steering.applied.assign(applied_.begin(), applied_.end());
  point.steering.validation_due = validation_due_;
  for (int attempt = 1;; ++attempt) {
    ASSIGN_OR_RETURN(const Checkpoints::Saved saved, checkpoints_->Save(point, state_));
    if (saved.files.ok()) {
      saved_ = CheckpointWritten{step_, saved.path, identity_.generation};
      return SaveResult();
    }
    // Rank 0's lease is over: nothing is wrong with the files, and the next generation saves.
    if (absl::IsUnavailable(saved.files)) return saved.files;
    if (kind != SaveKind::kOnTheWay && TryAgain(saved.files, attempt, "saving a checkpoint")) {
      continue;
    }
    Report(CheckpointFailed{step_, Message(saved.files), kind == SaveKind::kFinal});
    return SaveResult{saved.files};
  }
}

bool SessionImpl::TryAgain(const absl::Status& files, int attempt, const char* doing) {
  // A full disk, or one with a fault: somebody may make space, or remove what no longer counts. All
  // else stays as it is.
  const bool may_help = absl::IsResourceExhausted(files) || absl::IsInternal(files);
  if (!may_help || attempt >= kAttempts) return false;
  if (leader()) {
    spdlog::warn("{} failed, attempt {} of {}: {}", doing, attempt, kAttempts, Message(files));
  }
  Progress(doing);
  std::this_thread::sleep_for(absl::ToChronoMilliseconds(parts_.save_retry));
  return true;
}

RollCallRecord SessionImpl::Record(int64_t step, const data::Position& position) const {
  data::Sampler::Share share;
  if (trains()) share = sampler_->ShareOf(position, identity_.rank);
  int64_t joined_since = 0;
  if (trains() && share.micro_batches == 0) {
    // Who has no input at all has none from the start.
    joined_since = train_data_->dataset->size() == 0 ? 1 : step + 1 - share.idle_steps;
  }
  const comm::FlightRecorder::Digest digest = flight_->digest();
  return {.generation = identity_.generation,
          .step = step + 1,
          .attempt = attempt_,
          .epoch = position.epoch,
          .cursor = position.cursor,
          .micro_batches = share.micro_batches,
          .samples = share.samples,
          .joined_since = joined_since,
          .newest_command = parts_.commands->Newest(),
          .layout = layout_,
          .learning_rate = learning_rate_,
          .mask_hash = MaskHash(wanted_),
          .first_change = trains() ? FirstDifference(wanted_, training_->mask()) : -1,
          .preempted = parts_.commands->Preempted(),
          .loss_step = loss_step_,
          .loss_sum = loss_sum_,
          .loss_weight = loss_weight_,
          .loss_outcome = static_cast<int64_t>(outcome_),
          .collectives = static_cast<int64_t>(digest.begun),
          .collectives_hash = static_cast<int64_t>(digest.hash)};
}

void SessionImpl::PostNext() {
  attempt_ = 0;
  Post(Record(step_ + 1, sampler_->After(position_)));
}

void SessionImpl::Post(const RollCallRecord& record) {
  posted_not_finite_ = not_finite_;
  roll_call_.Post(record);
}

absl::StatusOr<RollCallPlan> SessionImpl::AwaitNext() {
  const absl::StatusOr<RollCallPlan> plan = roll_call_.Await();
  RETURN_IF_ERROR(StillMine());
  if (absl::IsOutOfRange(plan.status())) return WithOrigin(plan.status());
  if (!plan.ok()) return plan.status();
  if (plan->collectives_differ) return NameCollectiveDifference();
  if (plan->masks_differ) return NameMaskDifference();
  ReportLoss(*plan);
  if (joined_ != plan->inputs.joined) {
    joined_ = plan->inputs.joined;
    Report(RanksJoined{joined_});
  }
  return plan;
}

absl::Status SessionImpl::WithOrigin(const absl::Status& error) {
  constexpr int64_t kBytes = 160;
  const at::Tensor mine = at::zeros({kBytes}, at::kByte);
  std::copy_n(posted_not_finite_.data(), std::min<size_t>(posted_not_finite_.size(), kBytes - 1),
              mine.data_ptr<uint8_t>());
  const at::Tensor all = at::empty({kBytes * parts_.control->world_size()}, at::kByte);
  RETURN_IF_ERROR(parts_.control->AllGather(all, mine, {"origin of a loss", step_})->Wait());
  std::vector<std::string> origins;
  for (int64_t rank = 0; rank < parts_.control->world_size(); ++rank) {
    const char* text = reinterpret_cast<const char*>(all.data_ptr<uint8_t>()) + rank * kBytes;
    if (*text != '\0') origins.push_back(text);
  }
  if (origins.empty()) return error;
  const std::string more =
      origins.size() > 1 ? absl::StrCat(" and of ", origins.size() - 1, " more ranks") : "";
  return absl::Status(error.code(),
                      absl::StrCat(error.message(), "; it is that of ", origins[0], more));
}

absl::Status SessionImpl::NameCollectiveDifference() {
  // All ranks have taken part in the same roll call. What each of them did before it, as text of a
  // fixed size.
  constexpr int64_t kNameBytes = 140;
  constexpr int64_t kKept = comm::FlightRecorder::kKept;
  const comm::FlightRecorder::Flight flight = flight_->Read();
  const at::Tensor mine = at::zeros({kKept * kNameBytes}, at::kByte);
  char* text = reinterpret_cast<char*>(mine.data_ptr<uint8_t>());
  for (const auto& record : flight.newest) {
    char* name = text + static_cast<int64_t>(record.number % kKept) * kNameBytes;
    const std::string numbered = absl::StrCat(record.number, " ", record.name);
    std::copy_n(numbered.data(), std::min<size_t>(numbered.size(), kNameBytes - 1), name);
  }
  const at::Tensor all = at::empty({mine.numel() * parts_.control->world_size()}, at::kByte);
  RETURN_IF_ERROR(parts_.control->AllGather(all, mine, {"names of collectives", step_})->Wait());
  const char* names = reinterpret_cast<const char*>(all.data_ptr<uint8_t>());
  const std::string where =
      absl::StrCat("roll call of step ", step_ + 1, ": the ranks call different collectives");
  for (const auto& record : flight.newest) {
    const char* slot = names + static_cast<int64_t>(record.number % kKept) * kNameBytes;
    const std::string number = absl::StrCat(record.number, " ");
    absl::string_view first = slot;
    if (!absl::ConsumePrefix(&first, number)) continue;  // rank 0 does not keep this one
    for (int64_t rank = 1; rank < parts_.control->world_size(); ++rank) {
      absl::string_view other = slot + rank * mine.numel();
      if (!absl::ConsumePrefix(&other, number) || first == other) continue;
      return absl::FailedPreconditionError(absl::StrCat(where, ": number ", record.number, " is ",
                                                        first, " on rank 0 and ", other,
                                                        " on rank ", rank));
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat(where, ", before the last ", kKept, " that they did alike"));
}

absl::StatusOr<RollCallPlan> SessionImpl::CallNow() {
  ++attempt_;
  Post(Record(step_, position_));
  return AwaitNext();
}

void SessionImpl::ReportLoss(const RollCallPlan& plan) {
  if (!plan.loss.has_value()) return;
  for (const v1::StepMetrics& step : loss_reports_.Complete(*plan.loss, *model_)) Report(step);
}

absl::StatusOr<std::unique_ptr<Session>> Session::Create(const Identity& identity, const Job& job,
                                                         const SessionParts& parts) {
  auto session = std::make_unique<SessionImpl>(identity, job, parts);
  const absl::Status built = Guarded("set-up", [&session] { return session->Build(); });
  // Who has saved a checkpoint has read all its files before: they are gone here, not for good.
  const bool ran_before = !parts.checkpoints.empty() || parts.had_checkpoints;
  const bool gone = absl::IsNotFound(built) || absl::IsPermissionDenied(built);
  if (ran_before && gone && CauseOf(built) == Cause::kNone) {
    return WithCause(
        Annotate(
            built,
            "what the job could read before is missing; is the file system mounted on this node?"),
        Cause::kNodeFault);
  }
  RETURN_IF_ERROR(built);
  return session;
}

}  // namespace muster::train
