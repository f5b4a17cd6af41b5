#include "worker/train/evaluate/session_generator.h"

#include <utility>

#include "common/status/status.h"
#include "common/tokenizer/bytes.h"
#include "worker/train/evaluate/generate.h"
#include "worker/train/step/autocast.h"

namespace muster::train {
namespace {

models::GenerationRequest GenerationOf(const v1::SampleCommand& sample) {
  models::GenerationRequest request{.prompts = {{sample.tokens().begin(), sample.tokens().end()}},
                                    .max_tokens = sample.max_tokens(),
                                    .sampling = {.seed = sample.seed()}};
  if (sample.has_temperature()) request.sampling.temperature = sample.temperature();
  if (sample.has_top_k()) request.sampling.top_k = sample.top_k();
  return request;
}

}  // namespace

absl::StatusOr<std::vector<std::vector<int64_t>>> SessionGenerator::Generate(
    const models::GenerationRequest& request) {
  LiveState& live = *parts_.live;
  RETURN_IF_ERROR(live.AwaitParameters());
  ASSIGN_OR_RETURN(const auto scope, parts_.passes->Begin(live.training()));
  const AutocastScope autocast(parts_.job->numerics.precision, live.device().type());
  auto tokens = train::Generate(request, parts_.session_state->step, live.model(), live.context(),
                                live.device(), *parts_.control);
  // Also after an error that all ranks have and that need not end the session.
  if (tokens.ok() || absl::IsFailedPrecondition(tokens.status())) RETURN_IF_ERROR(scope->End());
  return tokens;
}

absl::Status SessionGenerator::CheckSample(const v1::SampleCommand& sample) const {
  const models::Model& model = parts_.live->model();
  const absl::Status checked = models::CheckGeneration(GenerationOf(sample), model);
  if (checked.ok() || model.key_values().has_value()) return checked;
  return absl::FailedPreconditionError(checked.message());
}

absl::StatusOr<Generator::SampleMade> SessionGenerator::Sample(const v1::SampleCommand& sample) {
  parts_.reports->Progress("sampling");
  const models::GenerationRequest request = GenerationOf(sample);
  const auto made = Generate(request);
  // Logits that are not finite, on all ranks; training has checks of its own.
  if (absl::IsFailedPrecondition(made.status())) return SampleMade(made.status());
  RETURN_IF_ERROR(made.status());
  Sampled sampled{parts_.session_state->step, request.prompts[0], made->at(0), ""};
  if (parts_.job->spec.model().tokenizer() == v1::ModelSpec::BYTES) {
    sampled.text = tokenizer::TextOfBytes(sampled.tokens);
  }
  return SampleMade(std::move(sampled));
}

}  // namespace muster::train
