// The stages of a session that do not train, and the two ways in which it computes without
// training: a pass over data, and a generation.
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/status/status.h"
#include "proto/muster/v1/metrics.pb.h"
#include "worker/train/evaluate/evaluate.h"
#include "worker/train/evaluate/generate.h"
#include "worker/train/ranks/agreed_status.h"
#include "worker/train/session/session_impl.h"
#include "worker/train/step/autocast.h"

namespace muster::train {

absl::Status SessionImpl::RunToEnd(const std::function<absl::StatusOr<bool>()>& work) {
  while (true) {
    ASSIGN_OR_RETURN(const RollCallPlan plan, CallNow());
    if (plan.preempted) return commands_->EndHere();
    ASSIGN_OR_RETURN(const bool applied, commands_->Apply(plan.apply_commands));
    if (session_state_.stopped) return absl::OkStatus();
    if (applied) continue;
    ASSIGN_OR_RETURN(const bool done, work());
    if (done) return absl::OkStatus();
  }
}

absl::Status SessionImpl::ValidateDue() {
  if (validate_data_.has_value()) {
    BeginStage("validate");
    RETURN_IF_ERROR(RunToEnd([this] { return ValidateLeft(); }));
  }
  session_state_.validation_due = false;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<v1::Evaluation>> SessionImpl::Validate() {
  reports_.Progress("validating");
  v1::StepMetrics metrics;
  metrics.set_step(session_state_.step);
  ASSIGN_OR_RETURN(const auto evaluation,
                   EvaluateOn(validate_data_, "data.validate", Interrupts::kByAnEnd));
  if (!evaluation.has_value()) return std::nullopt;
  *metrics.mutable_validation() = *evaluation;
  reports_.Report(metrics);
  return evaluation;
}

absl::StatusOr<bool> SessionImpl::Test() {
  reports_.Progress("testing");
  v1::StepMetrics metrics;
  metrics.set_step(session_state_.step);
  ASSIGN_OR_RETURN(const auto evaluation,
                   EvaluateOn(test_data_, "data.test", Interrupts::kByAnEnd));
  if (!evaluation.has_value()) return false;
  *metrics.mutable_test() = *evaluation;
  reports_.Report(metrics);
  return true;
}

absl::StatusOr<std::optional<v1::Evaluation>> SessionImpl::EvaluateOn(
    const std::optional<RankData>& data, const char* name, Interrupts interrupts) {
  RETURN_IF_ERROR(AwaitParameters());
  ASSIGN_OR_RETURN(const auto scope, passes_.Begin(training_.get()));
  const AutocastScope autocast(job_.precision, device().type());
  EvaluationPass pass = {.source = &*data,
                         .data = name,
                         .per_rank = job_.batch.per_rank,
                         .step = session_state_.step,
                         .model = model_.get(),
                         .context = &context(),
                         .device = device(),
                         .communicator = parts_.control};
  if (interrupts == Interrupts::kByAnEnd) pass.interrupted = [this] { return PassMustEnd(); };
  auto evaluation = Evaluate(pass);
  // Also after an error that all ranks have and that need not end the session.
  if (evaluation.ok() || IsAgreed(evaluation.status())) RETURN_IF_ERROR(scope->End());
  return evaluation;
}

absl::StatusOr<std::vector<std::vector<int64_t>>> SessionImpl::Generate(
    const models::GenerationRequest& request) {
  RETURN_IF_ERROR(AwaitParameters());
  ASSIGN_OR_RETURN(const auto scope, passes_.Begin(training_.get()));
  const AutocastScope autocast(job_.precision, device().type());
  auto tokens =
      train::Generate(request, session_state_.step, *model_, context(), device(), *parts_.control);
  // Also after an error that all ranks have and that need not end the session.
  if (tokens.ok() || absl::IsFailedPrecondition(tokens.status())) RETURN_IF_ERROR(scope->End());
  return tokens;
}

}  // namespace muster::train
