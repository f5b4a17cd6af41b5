#include "worker/train/evaluate/generate.h"

#include <algorithm>
#include <utility>

#include "ATen/core/Tensor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/problems/problems.h"
#include "common/status/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/data/tokens/documents_file.h"
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

models::GenerationRequest GenerationOf(const v1::SampleCommand& sample, std::vector<int64_t> prompt,
                                       int64_t context) {
  const auto length = static_cast<int64_t>(prompt.size());
  models::GenerationRequest request{.prompts = {std::move(prompt)},
                                    .max_tokens = sample.max_tokens(),
                                    .sampling = {.seed = sample.seed()}};
  if (sample.has_temperature()) request.sampling.temperature = sample.temperature();
  if (sample.has_top_k()) request.sampling.top_k = sample.top_k();
  if (sample.max_tokens() == 0) {
    // Without room the prompt is refused for its length.
    const int64_t room = std::max<int64_t>(1, context - length);
    request.max_tokens = std::min<int64_t>(room, sample.usual_tokens());
  }
  return request;
}

// Returns the tokens of a document of data.validate before the first target.
absl::StatusOr<std::vector<int64_t>> PromptOfDocument(const Job& job, int64_t document) {
  const auto* const files = std::get_if<DocumentFiles>(&job.data.validate.value());
  if (files == nullptr) return absl::InvalidArgumentError("data.validate has no documents");
  const auto& paths = files->mixture.empty() ? files->paths : files->mixture.front().paths;
  ASSIGN_OR_RETURN(const data::DocumentsFile file, data::DocumentsFile::Open(paths.front()));
  if (document >= file.documents()) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), " has ", file.documents(),
                                                   " documents; there is none with the number ",
                                                   document));
  }
  RETURN_IF_ERROR(file.CheckBounds());
  const int64_t begin = file.Bound(document);
  std::vector<int64_t> tokens = {file.Token(begin)};  // the first token is never a target
  for (int64_t at = begin + 1; at < file.Bound(document + 1) && file.Trained(at) == 0; ++at) {
    tokens.push_back(file.Token(at));
  }
  return tokens;
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

absl::StatusOr<SessionGenerator::Tokens> SessionGenerator::OfRankZero(
    const std::function<Tokens()>& find) {
  // Rank 0 reads the files for all ranks, because they may differ on another node.
  Tokens tokens = std::vector<int64_t>();
  if (deps_.control->rank() == 0) tokens = find();
  absl::Status told;
  RETURN_IF_ERROR(checkpoint::TellAll(*deps_.control, tokens.status(), "a text in tokens",
                                      deps_.session_state->step, &told));
  if (!told.ok()) return Tokens(told);
  ASSIGN_OR_RETURN(
      const std::string list,
      checkpoint::TellAll(*deps_.control, absl::StrJoin(*tokens, " "), "the tokens of a text"));
  std::vector<int64_t> shared;
  for (const auto word : absl::StrSplit(list, ' ', absl::SkipEmpty())) {
    if (!absl::SimpleAtoi(word, &shared.emplace_back())) return absl::InternalError(list);
  }
  return Tokens(std::move(shared));
}

Generator::Prepared SessionGenerator::Checked(models::GenerationRequest request) const {
  const models::Model& model = deps_.live->model();
  const absl::Status checked = models::CheckGeneration(request, model);
  if (checked.ok()) return request;
  if (model.continuation().has_value()) return checked;
  return absl::FailedPreconditionError(checked.message());
}

absl::StatusOr<Generator::Prepared> SessionGenerator::Prepare(const v1::SampleCommand& sample) {
  std::vector<int64_t> prompt(sample.tokens().begin(), sample.tokens().end());
  if (!sample.text().empty()) {
    ASSIGN_OR_RETURN(auto tokens, OfRankZero([&] { return texts_.TokensOf(sample.text()); }));
    if (!tokens.ok()) return Prepared(tokens.status());
    prompt = *std::move(tokens);
  }
  return Checked(GenerationOf(sample, std::move(prompt), deps_.live->model().Input().context));
}

absl::StatusOr<Generator::Prepared> SessionGenerator::Prepare(const FitSample& sample) {
  ASSIGN_OR_RETURN(auto tokens, OfRankZero([&]() -> Tokens {
                     if (!sample.document.has_value()) return texts_.TokensOf(sample.text);
                     return PromptOfDocument(*deps_.job, *sample.document);
                   }));
  if (!tokens.ok()) return Prepared(Annotate(tokens.status(), "sample"));
  // The end of a long prompt, so that there is room for new tokens.
  const int64_t context = deps_.live->model().Input().context;
  const auto most = static_cast<size_t>(std::max<int64_t>(1, context - sample.max_tokens));
  if (tokens->size() > most) tokens->erase(tokens->begin(), tokens->end() - most);
  v1::SampleCommand command;
  command.set_usual_tokens(static_cast<uint32_t>(sample.max_tokens));
  return Checked(GenerationOf(command, *std::move(tokens), context));
}

absl::StatusOr<Generator::SampleMade> SessionGenerator::Sample(
    const models::GenerationRequest& request) {
  deps_.reports->Progress("sampling");
  const auto made = Generate(request);
  // All ranks know that logits are not finite. Training has its own checks.
  if (absl::IsFailedPrecondition(made.status())) return SampleMade(made.status());
  RETURN_IF_ERROR(made.status());
  Sampled sampled{deps_.session_state->step, request.prompts[0], made->at(0), ""};
  if (deps_.control->rank() == 0) sampled.text = texts_.TextOf(sampled.tokens).value_or("");
  return SampleMade(std::move(sampled));
}

}  // namespace muster::train
