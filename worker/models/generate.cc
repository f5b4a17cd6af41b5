#include "worker/models/generate.h"

#include <algorithm>
#include <cmath>

#include "ATen/core/Tensor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "c10/core/GradMode.h"
#include "common/activity/activity.h"
#include "common/problems/problems.h"
#include "worker/device/host_values.h"
#include "worker/device/memory.h"
#include "worker/device/readback.h"
#include "worker/memory/memory_scope.h"
#include "worker/models/key_value_cache.h"

namespace muster::models {
namespace {

constexpr int64_t kMostRows = 16;
constexpr int64_t kCacheBytes = int64_t{256} << 20;
constexpr int64_t kFiller = 0;  // any token

int64_t SizeOf(const std::vector<int64_t>& prompt) { return static_cast<int64_t>(prompt.size()); }

void CheckSettings(const GenerationRequest& request, Problems& problems) {
  const auto& [temperature, top_k, seed] = request.sampling;
  if (request.max_tokens < 1) {
    problems.Add(absl::StrCat("max_tokens: expected at least 1, found ", request.max_tokens));
  }
  if (temperature.has_value() && !(std::isfinite(*temperature) && *temperature > 0)) {
    problems.Add(absl::StrCat("temperature: expected a finite number above 0, found ", *temperature,
                              "; without it the most likely token is taken"));
  }
  if (top_k.has_value() && *top_k < 1) {
    problems.Add(absl::StrCat("top_k: expected at least 1, found ", *top_k));
  } else if (top_k.has_value() && !temperature.has_value()) {
    problems.Add(
        "top_k: has no effect without temperature, because then the most likely token is taken; "
        "set temperature, or leave top_k out");
  }
}

void CheckPrompt(size_t number, const GenerationRequest& request, const InputSpec& input,
                 Problems& problems) {
  const std::vector<int64_t>& prompt = request.prompts[number];
  const std::string name = absl::StrCat("prompts[", number, "]");
  if (prompt.empty()) {
    problems.Add(absl::StrCat(name, ": expected at least one token, found none"));
    return;
  }
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] >= 0 && prompt[i] < input.vocab_size) continue;
    problems.Add(absl::StrCat(name, ": token ", i, ": expected an id from 0 to ",
                              input.vocab_size - 1, " (the model's vocabulary), found ",
                              prompt[i]));
    break;
  }
  // Compared without the sum, which may be too large for its type.
  if (request.max_tokens > input.context - SizeOf(prompt)) {
    problems.Add(absl::StrCat(name, ": expected at most ", input.context,
                              " tokens (the model's context), found ", prompt.size(), " and ",
                              request.max_tokens,
                              " new ones (max_tokens); shorten the prompt or lower max_tokens"));
  }
}

// Returns the rows, of at most `longest` tokens each, as int64 [B, longest].
at::Tensor InRows(absl::Span<const std::vector<int64_t>> prompts, int64_t longest) {
  std::vector<int64_t> tokens;
  for (const std::vector<int64_t>& prompt : prompts) {
    tokens.insert(tokens.end(), prompt.begin(), prompt.end());
    tokens.insert(tokens.end(), longest - SizeOf(prompt), kFiller);
  }
  return device::HostTensor(tokens).view({static_cast<int64_t>(prompts.size()), longest});
}

}  // namespace

absl::Status CheckGeneration(const GenerationRequest& request, const Model& model) {
  if (!model.key_values().has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "generate: found ", model.name(), ", which cannot generate; allowed: gpt2, llama"));
  }
  Problems problems;
  CheckSettings(request, problems);
  if (request.prompts.empty()) problems.Add("prompts: expected at least one, found none");
  const InputSpec input = model.Input();
  for (size_t i = 0; i < request.prompts.size(); ++i) CheckPrompt(i, request, input, problems);
  const auto prompts = static_cast<int64_t>(request.prompts.size());
  if (prompts > 0 && request.max_tokens > kMostNewTokens / prompts) {
    problems.Add(absl::StrCat("expected at most ", kMostNewTokens,
                              " new tokens at once, found max_tokens ", request.max_tokens,
                              " for each of ", prompts, " prompts; give the prompts in parts"));
  }
  return problems.ToStatus(absl::StatusCode::kInvalidArgument, "generate");
}

std::vector<PromptBatch> BatchesOf(const GenerationRequest& request, const KeyValueShape& shape) {
  std::vector<PromptBatch> batches;
  int64_t longest = 0;  // of the last batch
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const int64_t size = SizeOf(request.prompts[i]);
    const auto fits = [&] {
      const auto rows = static_cast<int64_t>(i + 1 - batches.back().begin);
      const int64_t positions = std::max(longest, size) + request.max_tokens;
      return rows <= kMostRows && rows * positions * shape.BytesPerPosition() <= kCacheBytes;
    };
    if (batches.empty() || !fits()) {
      batches.push_back({i, i});
      longest = 0;
    }
    batches.back().end = i + 1;
    longest = std::max(longest, size);
  }
  return batches;
}

std::vector<std::vector<int64_t>> GenerateBatch(const GenerationRequest& request,
                                                const PromptBatch& batch, Model& model,
                                                ForwardContext& context, c10::Device device) {
  const c10::AutoGradMode no_gradients(false);
  const memory::MemoryScope scope(memory::Purpose::kActivations);
  const auto prompts =
      absl::MakeConstSpan(request.prompts).subspan(batch.begin, batch.end - batch.begin);
  std::vector<int64_t> lengths;
  for (const auto& prompt : prompts) lengths.push_back(SizeOf(prompt));
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());

  KeyValueCache cache(lengths, longest + request.max_tokens, device);
  const ForwardContext::Generating generating(&context, &cache);
  std::vector<std::vector<int64_t>> completions(prompts.size());
  at::Tensor tokens = InRows(prompts, longest);
  for (int64_t made = 0; made < request.max_tokens; ++made) {
    if (made > 0) cache.Advance();
    const at::Tensor there = device::On(device, device::PinnedFor(device, tokens));
    const at::Tensor logits = model.Logits(there, context);
    const device::Readback on_host({logits});
    const absl::Span<const double> values = on_host.Await();
    const size_t vocabulary = values.size() / prompts.size();
    std::vector<int64_t> next;
    for (size_t row = 0; row < prompts.size(); ++row) {
      const TokenPlace place = {.prompt = static_cast<int64_t>(batch.begin + row),
                                .position = lengths[row] + made};
      const bool failed = made > 0 && completions[row].back() == kNoToken;
      const int64_t token =
          failed ? kNoToken
                 : NextToken(values.subspan(row * vocabulary, vocabulary), request.sampling, place)
                       .value_or(kNoToken);
      completions[row].push_back(token);
      next.push_back(token == kNoToken ? kFiller : token);
    }
    tokens = device::HostTensor(next).view({static_cast<int64_t>(prompts.size()), 1});
    activity::Moved();
  }
  return completions;
}

}  // namespace muster::models
