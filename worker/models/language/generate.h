// Continues texts with a language model (Model::continuation): gpt2 and llama keep keys and values,
// and an exported model computes the whole text for each new token. Texts are lists of token ids.
// docs/how-to/generate.md is the page for users.
//
// Greedy completions are those of transformers' `generate` with do_sample=False. The completion of
// a prompt depends on the weights, the settings, the prompt and its number, and not on earlier
// draws or computations.
// Prompts are computed in batches. Other prompts of the batch change a prompt's logits only by
// rounding (within 1e-5 for logits of the order of 1; key_value_cache.h says why). So a prompt's
// tokens stay the same unless two logits are as near. The batches depend only on the request and
// the model. With the same bits in parameters, ranks and strategies give the same tokens.
#ifndef MUSTER_WORKER_MODELS_LANGUAGE_GENERATE_H_
#define MUSTER_WORKER_MODELS_LANGUAGE_GENERATE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "worker/models/language/next_token.h"
#include "worker/models/model.h"

namespace muster::models {

struct GenerationRequest {
  std::vector<std::vector<int64_t>> prompts;
  // The number of new tokens for each prompt. A model knows no token that ends a text.
  int64_t max_tokens = 0;
  Sampling sampling;
};

// The limit of new tokens of all prompts together (8 MiB as int64).
inline constexpr int64_t kMostNewTokens = int64_t{1} << 20;

// Pure, and reads no parameter. INVALID_ARGUMENT, with the prompt's number, expected and found, if:
// - the model cannot generate
// - there is no prompt, or a prompt is empty, or a token is not in the vocabulary
// - a prompt with its new tokens is longer than the model's context
// - a setting is out of its range, or there are more than kMostNewTokens new tokens
absl::Status CheckGeneration(const GenerationRequest& request, const Model& model);

// Prompts that are computed together: from `begin` to before `end`.
struct PromptBatch {
  size_t begin = 0;
  size_t end = 0;

  bool operator==(const PromptBatch&) const = default;
};

// Splits all prompts, in their order, into batches. A batch has at most 16 prompts, and keys and
// values, or logits of whole sequences, of at most 256 MiB, but at least one prompt. Depends only
// on the (valid) request and the continuation.
std::vector<PromptBatch> BatchesOf(const GenerationRequest& request,
                                   const Continuation& continuation);

// The value in place of tokens that could not be chosen.
inline constexpr int64_t kNoToken = -1;

// Returns the new tokens of each prompt of the batch. Runs max_tokens forwards in the context,
// without gradients. On a device the host waits once for each forward. Does not use the context's
// generator, and restores its mode.
// After the first logits that are not finite, a prompt's new tokens are kNoToken. The forwards
// continue, because other ranks may take part in them.
// Memory until the return: the activations of one forward, the KeyValueCache, and the logits of one
// token of each prompt. The cache takes KeyValueShape::BytesPerPosition() x prompts x (longest
// prompt + max_tokens). Without keys and values, the logits of whole sequences take the place of
// the cache. Threading and exceptions: see unit.h.
std::vector<std::vector<int64_t>> GenerateBatch(const GenerationRequest& request,
                                                const PromptBatch& batch, Model& model,
                                                ForwardContext& context, c10::Device device);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LANGUAGE_GENERATE_H_
