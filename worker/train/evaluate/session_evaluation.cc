#include "worker/train/evaluate/session_evaluation.h"

#include <utility>

#include "common/status/status.h"
#include "worker/train/evaluate/evaluate.h"
#include "worker/train/ranks/agreed_status.h"
#include "worker/train/step/autocast.h"

namespace muster::train {

absl::StatusOr<std::optional<v1::Evaluation>> SessionEvaluation::Validate() {
  return Pass(Set::kValidate, Interrupts::kByAnEnd);
}

absl::StatusOr<std::optional<v1::Evaluation>> SessionEvaluation::Test() {
  return Pass(Set::kTest, Interrupts::kByAnEnd);
}

absl::StatusOr<std::optional<v1::Evaluation>> SessionEvaluation::Pass(Set set,
                                                                      Interrupts interrupts) {
  const bool test = set == Set::kTest;
  LiveState& live = *parts_.live;
  parts_.reports->Progress(test ? "testing" : "validating");
  v1::StepMetrics metrics;
  metrics.set_step(parts_.session_state->step);
  RETURN_IF_ERROR(live.AwaitParameters());
  ASSIGN_OR_RETURN(const auto scope, parts_.passes->Begin(live.training()));
  const AutocastScope autocast(parts_.job->numerics.precision, live.device().type());
  EvaluationPass pass = {.source = test ? parts_.test : parts_.validate,
                         .data = test ? "data.test" : "data.validate",
                         .per_rank = parts_.job->batch.per_rank,
                         .step = parts_.session_state->step,
                         .model = &live.model(),
                         .context = &live.context(),
                         .device = live.device(),
                         .communicator = parts_.control};
  if (interrupts == Interrupts::kByAnEnd) {
    pass.interrupted = [calls = parts_.calls] { return calls->PassMustEnd(); };
  }
  auto evaluation = Evaluate(pass);
  // Also after an error that all ranks have and that need not end the session.
  if (evaluation.ok() || IsAgreed(evaluation.status())) RETURN_IF_ERROR(scope->End());
  RETURN_IF_ERROR(evaluation.status());
  if (!evaluation->has_value()) return std::nullopt;
  *(test ? metrics.mutable_test() : metrics.mutable_validation()) = **evaluation;
  parts_.reports->Report(metrics);
  return evaluation;
}

bool SessionEvaluation::HasDataFor(const std::string& stage) const {
  if (stage == kValidateStage) return parts_.validate != nullptr;
  return stage == kTestStage && parts_.test != nullptr;
}

absl::StatusOr<Evaluator::Evaluated> SessionEvaluation::EvaluateNow(const std::string& stage) {
  auto evaluation = Pass(stage == kTestStage ? Set::kTest : Set::kValidate, Interrupts::kNever);
  // Training does not need these data, so it goes on if all ranks know that there is an error.
  if (IsAgreed(evaluation.status())) return Evaluated(evaluation.status());
  RETURN_IF_ERROR(evaluation.status());
  return Evaluated(StageEvaluated{parts_.session_state->step, stage, **std::move(evaluation)});
}

}  // namespace muster::train
