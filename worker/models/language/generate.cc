#include "worker/models/language/generate.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <variant>

#include "ATen/core/Tensor.h"
#include "ATen/ops/full.h"
#include "ATen/ops/gather.h"
#include "ATen/ops/scatter.h"
#include "ATen/ops/sub.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "c10/core/GradMode.h"
#include "common/activity/activity.h"
#include "common/problems/problems.h"
#include "worker/device/host_values.h"
#include "worker/device/memory.h"
#include "worker/device/readback.h"
#include "worker/memory/memory_scope.h"
#include "worker/models/language/key_value_cache.h"

namespace muster::models {
namespace {

constexpr int64_t kMostRows = 16;
constexpr int64_t kBatchBytes = int64_t{256} << 20;
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

// The length of sequences with room for this many positions.
int64_t LengthOf(const WholeSequences& whole, int64_t positions) {
  return whole.length.value_or(std::max(positions, whole.shortest));
}

// The memory that a sequence of this many positions takes besides the activations.
int64_t RowBytes(const Continuation& continuation, int64_t positions) {
  if (const auto* shape = std::get_if<KeyValueShape>(&continuation)) {
    return positions * shape->BytesPerPosition();
  }
  const auto& whole = std::get<WholeSequences>(continuation);
  return LengthOf(whole, positions) * whole.vocabulary * 4;
}

// The forwards that continue the texts of a batch.
class Forwards {
 public:
  // `lengths`: of the prompts. `room`: the number of positions of a row.
  Forwards(Model& model, ForwardContext& context, c10::Device device, std::vector<int64_t> lengths,
           int64_t room)
      : model_(model), context_(context), device_(device), lengths_(std::move(lengths)) {
    const std::optional<Continuation> continuation = model.continuation();
    if (const auto* whole = std::get_if<WholeSequences>(&*continuation)) {
      const auto rows = static_cast<int64_t>(lengths_.size());
      texts_ = at::full({rows, LengthOf(*whole, room)}, kFiller, at::kLong);
    } else {
      cache_.emplace(lengths_, room, device);
    }
    generating_.emplace(&context, cache_.has_value() ? &*cache_ : nullptr);
  }

  // Returns the logits of the token that follows each text, [B, 1, vocab_size]. `tokens`: int64 [B,
  // C], the tokens after those of the last call: first the prompts with fillers, then one of each.
  at::Tensor Next(const at::Tensor& tokens) {
    const bool first = std::exchange(first_, false);
    if (cache_.has_value()) {
      if (!first) cache_->Advance();
      return model_.Logits(There(tokens), context_);
    }
    if (first) {
      texts_.narrow(1, 0, tokens.size(1)).copy_(tokens);
    } else {
      for (int64_t& length : lengths_) ++length;
      texts_.scatter_(1, LastOnes(), tokens);
    }
    const at::Tensor logits = model_.Logits(There(texts_), context_);
    const at::Tensor places = There(LastOnes()).unsqueeze(2);
    const at::Tensor found = logits.gather(1, places.expand({-1, -1, logits.size(2)}));
    // A model may have logits for more tokens than it takes.
    return found.narrow(2, 0, model_.Input().vocab_size);
  }

 private:
  at::Tensor There(const at::Tensor& x) const {
    return device::On(device_, device::PinnedFor(device_, x));
  }
  // Returns the place of each text's last token, int64 [B, 1].
  at::Tensor LastOnes() const {
    return device::HostTensor(lengths_).view({static_cast<int64_t>(lengths_.size()), 1}).sub(1);
  }

  Model& model_;
  ForwardContext& context_;
  const c10::Device device_;
  std::vector<int64_t> lengths_;  // without a cache: of the texts
  at::Tensor texts_;              // without a cache: int64 [B, positions], filled up at their ends
  std::optional<KeyValueCache> cache_;
  std::optional<ForwardContext::Generating> generating_;
  bool first_ = true;
};

}  // namespace

absl::Status CheckGeneration(const GenerationRequest& request, const Model& model) {
  if (!model.continuation().has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "generate: found ", model.name(), ", which cannot generate; ", model.WhyNoContinuation()));
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

std::vector<PromptBatch> BatchesOf(const GenerationRequest& request,
                                   const Continuation& continuation) {
  std::vector<PromptBatch> batches;
  int64_t longest = 0;  // of the last batch
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const int64_t size = SizeOf(request.prompts[i]);
    const auto fits = [&] {
      const auto rows = static_cast<int64_t>(i + 1 - batches.back().begin);
      const int64_t positions = std::max(longest, size) + request.max_tokens;
      return rows <= kMostRows && rows * RowBytes(continuation, positions) <= kBatchBytes;
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

  Forwards forwards(model, context, device, std::move(lengths), longest + request.max_tokens);
  std::vector<std::vector<int64_t>> completions(prompts.size());
  at::Tensor tokens = InRows(prompts, longest);
  for (int64_t made = 0; made < request.max_tokens; ++made) {
    const at::Tensor logits = forwards.Next(tokens);
    const device::Readback on_host({logits});
    const absl::Span<const double> values = on_host.Await();
    const size_t vocabulary = values.size() / prompts.size();
    std::vector<int64_t> next;
    for (size_t row = 0; row < prompts.size(); ++row) {
      const TokenPlace place = {.prompt = static_cast<int64_t>(batch.begin + row),
                                .position = SizeOf(prompts[row]) + made};
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
