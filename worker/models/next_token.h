// Chooses the token that follows a text, from the logits of the text's last token. Pure.
// docs/how-to/generate.md specifies it so exactly that any language reproduces it: the choice
// depends only on the logits, the settings, the number of the prompt and the position of the token.
#ifndef MUSTER_WORKER_MODELS_NEXT_TOKEN_H_
#define MUSTER_WORKER_MODELS_NEXT_TOKEN_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"

namespace muster::models {

struct Sampling {
  // Above 0: a token is drawn, token i with a probability in proportion to exp(logit_i /
  // temperature). Absent: the token with the largest logit (greedy), the first one of equal ones.
  std::optional<double> temperature;
  // At least 1, and only with a temperature: only the `top_k` tokens with the largest logits may be
  // drawn; of equal ones the first. Absent, or more than there are: all tokens.
  std::optional<int64_t> top_k;
  uint64_t seed = 0;  // without effect if there is no temperature
};

// Which token is chosen.
struct TokenPlace {
  int64_t prompt = 0;    // from 0
  int64_t position = 0;  // in prompt and completion together, from 0
};

// One of 2^53 numbers in [0, 1), the same for the same arguments.
double RandomNumber(uint64_t seed, const TokenPlace& place);

// The token's id. Computes in float64. `logits`: at least one. nullopt: a logit is not finite.
std::optional<int64_t> NextToken(absl::Span<const double> logits, const Sampling& sampling,
                                 const TokenPlace& place);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_NEXT_TOKEN_H_
