#include "worker/train/evaluate/generate.h"

#include <algorithm>
#include <utility>

#include "ATen/core/Tensor.h"
#include "absl/strings/str_cat.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "common/tokenizer/bytes.h"
#include "worker/device/host_values.h"
#include "worker/train/step/autocast.h"

namespace muster::train {
namespace {

using Completions = std::vector<std::vector<int64_t>>;

// Returns a request with the same number of forwards as a batch of `request`, for a rank whose
// result is not used.
models::GenerationRequest OnlyForOthers(const models::GenerationRequest& request) {
  return {.prompts = {{0}}, .max_tokens = request.max_tokens, .sampling = {}};
}

absl::Status CheckFinite(const models::GenerationRequest& request, const Completions& completions) {
  Problems problems;
  for (size_t i = 0; i < completions.size(); ++i) {
    const auto failed = std::find(completions[i].begin(), completions[i].end(), models::kNoToken);
    if (failed == completions[i].end()) continue;
    problems.Add(absl::StrCat("prompts[", i, "]: the logits of the token at position ",
                              request.prompts[i].size() + (failed - completions[i].begin()),
                              " are not finite"));
  }
  return problems.ToStatus(absl::StatusCode::kFailedPrecondition,
                           "generate: check the model's weights, and the precision it computes in");
}

models::GenerationRequest GenerationOf(const v1::SampleCommand& sample, int64_t context) {
  models::GenerationRequest request{.prompts = {{sample.tokens().begin(), sample.tokens().end()}},
                                    .max_tokens = sample.max_tokens(),
                                    .sampling = {.seed = sample.seed()}};
  if (sample.has_temperature()) request.sampling.temperature = sample.temperature();
  if (sample.has_top_k()) request.sampling.top_k = sample.top_k();
  if (sample.max_tokens() == 0) {
    // Without room the prompt is refused for its length.
    const int64_t room = std::max<int64_t>(1, context - sample.tokens_size());
    request.max_tokens = std::min<int64_t>(room, sample.usual_tokens());
  }
  return request;
}

}  // namespace

absl::StatusOr<Completions> Generate(const models::GenerationRequest& request, int64_t step,
                                     models::Model& model, models::ForwardContext& context,
                                     c10::Device device, comm::Communicator& communicator) {
  RETURN_IF_ERROR(models::CheckGeneration(request, model));
  const auto batches = models::BatchesOf(request, *model.continuation());
  const auto ranks = static_cast<size_t>(communicator.world_size());
  Completions completions(request.prompts.size(),
                          std::vector<int64_t>(static_cast<size_t>(request.max_tokens), 0));
  for (size_t first = 0; first < batches.size(); first += ranks) {
    const size_t mine = first + static_cast<size_t>(communicator.rank());
    if (mine < batches.size()) {
      auto made = models::GenerateBatch(request, batches[mine], model, context, device);
      std::move(made.begin(), made.end(),
                completions.begin() + static_cast<int64_t>(batches[mine].begin));
    } else if (context.collective()) {
      models::GenerateBatch(OnlyForOthers(request), {.begin = 0, .end = 1}, model, context, device);
    }
  }
  // Each token is on one rank; the other ranks have 0.
  std::vector<int64_t> flat;
  for (const auto& tokens : completions) flat.insert(flat.end(), tokens.begin(), tokens.end());
  const at::Tensor all = device::HostTensor(flat);
  RETURN_IF_ERROR(communicator.AllReduceSum(all, {.what = "new tokens", .step = step})->Wait());
  auto token = device::HostValues<int64_t>(all).begin();
  for (auto& tokens : completions) {
    for (int64_t& place : tokens) place = *token++;
  }
  RETURN_IF_ERROR(CheckFinite(request, completions));
  return completions;
}

absl::StatusOr<std::vector<std::vector<int64_t>>> SessionGenerator::Generate(
    const models::GenerationRequest& request) {
  LiveState& live = *deps_.live;
  RETURN_IF_ERROR(live.AwaitParameters());
  ASSIGN_OR_RETURN(const auto scope, deps_.passes->Begin(live.training()));
  const AutocastScope autocast(deps_.job->numerics.precision, live.device().type());
  auto tokens = train::Generate(request, deps_.session_state->step, live.model(), live.context(),
                                live.device(), *deps_.control);
  // End also follows an error that all ranks have, because such an error need not end the session.
  if (tokens.ok() || absl::IsFailedPrecondition(tokens.status())) RETURN_IF_ERROR(scope->End());
  return tokens;
}

absl::Status SessionGenerator::CheckSample(const v1::SampleCommand& sample) const {
  const models::Model& model = deps_.live->model();
  const absl::Status checked =
      models::CheckGeneration(GenerationOf(sample, model.Input().context), model);
  if (checked.ok() || model.continuation().has_value()) return checked;
  return absl::FailedPreconditionError(checked.message());
}

absl::StatusOr<Generator::SampleMade> SessionGenerator::Sample(const v1::SampleCommand& sample) {
  deps_.reports->Progress("sampling");
  const models::GenerationRequest request =
      GenerationOf(sample, deps_.live->model().Input().context);
  const auto made = Generate(request);
  // All ranks know that logits are not finite. Training has its own checks.
  if (absl::IsFailedPrecondition(made.status())) return SampleMade(made.status());
  RETURN_IF_ERROR(made.status());
  Sampled sampled{deps_.session_state->step, request.prompts[0], made->at(0), ""};
  if (deps_.job->spec.model().tokenizer() == v1::ModelSpec::BYTES) {
    sampled.text = tokenizer::TextOfBytes(sampled.tokens);
  }
  return SampleMade(std::move(sampled));
}

}  // namespace muster::train
