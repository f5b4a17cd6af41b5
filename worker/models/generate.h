// Continues texts with a language model that keeps keys and values (Model::key_values): gpt2 and
// llama. Texts are lists of token ids. docs/how-to/generate.md is the page for users.
//
// Greedy completions are those of transformers' `generate` with do_sample=False. What a prompt is
// continued by depends on the weights, the settings, the prompt and its number, and on nothing
// drawn or computed before. Prompts are computed in batches; the others in its batch change a
// prompt's logits by rounding only (within 1e-5 of logits of the order of 1; key_value_cache.h says
// why), so its tokens are the same unless two are as near as that. The batches are the same
// wherever they are computed, so ranks and strategies with the same bits in their parameters give
// the same tokens.
#ifndef MUSTER_WORKER_MODELS_GENERATE_H_
#define MUSTER_WORKER_MODELS_GENERATE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "worker/models/model.h"
#include "worker/models/next_token.h"

namespace muster::models {

struct GenerationRequest {
  std::vector<std::vector<int64_t>> prompts;
  // New tokens for each prompt; a model knows no token that ends a text.
  int64_t max_tokens = 0;
  Sampling sampling;
};

// New tokens of all prompts together: as int64 8 MiB.
inline constexpr int64_t kMostNewTokens = int64_t{1} << 20;

// INVALID_ARGUMENT, with the prompt's number, expected and found: the model cannot generate; there
// is no prompt, or an empty one; a token is not in the vocabulary; a prompt and its new tokens
// together are longer than the model's context; a setting is out of its range; more than
// kMostNewTokens. Pure, and reads no parameter.
absl::Status CheckGeneration(const GenerationRequest& request, const Model& model);

// Prompts that are computed together: those from `begin` to before `end`.
struct PromptBatch {
  size_t begin = 0;
  size_t end = 0;

  bool operator==(const PromptBatch&) const = default;
};

// All prompts in their order, as many in a batch as fit: 16, and a cache of 256 MiB, but at least
// one prompt. Of a valid request. Depends on request and shape alone.
std::vector<PromptBatch> BatchesOf(const GenerationRequest& request, const KeyValueShape& shape);

// Instead of tokens that could not be chosen.
inline constexpr int64_t kNoToken = -1;

// The new tokens of each prompt of the batch. Runs max_tokens forwards in the context, without
// gradients; on a device the host waits once for each. Draws nothing from the context's generator;
// its mode is restored. From the first logits on that are not finite, a prompt's new tokens are
// kNoToken, and the forwards go on: other ranks may take part in them.
// Memory until it returns: KeyValueCache's, which is KeyValueShape::BytesPerPosition() x prompts x
// (longest prompt + max_tokens), the activations of one forward, and the logits of one token of
// each prompt. Threading and exceptions as in unit.h.
std::vector<std::vector<int64_t>> GenerateBatch(const GenerationRequest& request,
                                                const PromptBatch& batch, Model& model,
                                                ForwardContext& context, c10::Device device);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_GENERATE_H_
