// What commands compute with the model between two steps, without effect on training.
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/status/status.h"
#include "common/tokenizer/bytes.h"
#include "proto/muster/v1/metrics.pb.h"
#include "worker/train/ranks/agreed_status.h"
#include "worker/train/session/session_impl.h"

namespace muster::train {
namespace {

models::GenerationRequest GenerationOf(const SampleCommand& sample) {
  return {
      .prompts = {sample.prompt},
      .max_tokens = sample.max_tokens,
      .sampling = {.temperature = sample.temperature, .top_k = sample.top_k, .seed = sample.seed}};
}

}  // namespace

bool SessionImpl::HasDataFor(const std::string& stage) const {
  if (stage == kValidateStage) return validate_data_.has_value();
  return stage == kTestStage && test_data_.has_value();
}

absl::StatusOr<CommandEffects::Evaluated> SessionImpl::EvaluateNow(const std::string& stage) {
  const bool test = stage == kTestStage;
  reports_.Progress(test ? "testing" : "validating");
  auto evaluation = EvaluateOn(test ? test_data_ : validate_data_,
                               test ? "data.test" : "data.validate", Interrupts::kNever);
  // Training does not need these data, so it goes on if all ranks know that there is an error.
  if (IsAgreed(evaluation.status())) return Evaluated(evaluation.status());
  RETURN_IF_ERROR(evaluation.status());
  v1::StepMetrics metrics;
  metrics.set_step(session_state_.step);
  *(test ? metrics.mutable_test() : metrics.mutable_validation()) = **evaluation;
  reports_.Report(metrics);
  return Evaluated(StageEvaluated{session_state_.step, stage, **std::move(evaluation)});
}

absl::Status SessionImpl::CheckSample(const SampleCommand& sample) const {
  const absl::Status checked = models::CheckGeneration(GenerationOf(sample), *model_);
  if (checked.ok() || model_->key_values().has_value()) return checked;
  return absl::FailedPreconditionError(checked.message());
}

absl::StatusOr<CommandEffects::SampleMade> SessionImpl::Sample(const SampleCommand& sample) {
  reports_.Progress("sampling");
  const auto made = Generate(GenerationOf(sample));
  // Logits that are not finite, on all ranks; training has checks of its own.
  if (absl::IsFailedPrecondition(made.status())) return SampleMade(made.status());
  RETURN_IF_ERROR(made.status());
  Sampled sampled{session_state_.step, sample.prompt, made->at(0), ""};
  if (job_.spec.model().tokenizer() == v1::ModelSpec::BYTES) {
    sampled.text = tokenizer::TextOfBytes(sampled.tokens);
  }
  return SampleMade(std::move(sampled));
}

}  // namespace muster::train
