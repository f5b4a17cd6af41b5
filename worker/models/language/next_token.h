// The choice of the token that follows a text, from the logits of the text's last token. Pure. The
// choice depends only on the logits, the settings, the number of the prompt and the position of the
// token. docs/how-to/generate.md specifies the choice exactly, so that any language can reproduce
// it.
#ifndef MUSTER_WORKER_MODELS_LANGUAGE_NEXT_TOKEN_H_
#define MUSTER_WORKER_MODELS_LANGUAGE_NEXT_TOKEN_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"

namespace muster::models {

struct Sampling {
  // Present (above 0): draws token i with a probability in proportion to exp(logit_i /
  // temperature). Absent: takes the largest logit (greedy), of equal logits the first.
  std::optional<double> temperature;
  // The number of tokens that may be drawn: those with the largest logits, of equal logits the
  // first. At least 1, and only with a temperature. Absent, or above the vocabulary: all tokens.
  std::optional<int64_t> top_k;
  uint64_t seed = 0;  // no effect without a temperature
};

// The place of the token to choose.
struct TokenPlace {
  int64_t prompt = 0;    // from 0
  int64_t position = 0;  // in prompt and completion together, from 0
};

// Returns one of 2^53 numbers in [0, 1), the same for the same arguments.
double RandomNumber(uint64_t seed, const TokenPlace& place);

// Returns the token's id, computed in float64; nullopt: a logit is not finite. `logits`: not empty.
std::optional<int64_t> NextToken(absl::Span<const double> logits, const Sampling& sampling,
                                 const TokenPlace& place);

}  // namespace muster::models

#endif  // MUSTER_WORKER_MODELS_LANGUAGE_NEXT_TOKEN_H_
