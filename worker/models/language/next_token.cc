#include "worker/models/language/next_token.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "common/random/splitmix.h"

namespace muster::models {
namespace {

// Returns the ids of the tokens that may be drawn, ascending.
std::vector<int64_t> Candidates(absl::Span<const double> logits, std::optional<int64_t> top_k) {
  std::vector<int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  if (!top_k.has_value() || *top_k >= static_cast<int64_t>(ids.size())) return ids;
  const auto before = [&](int64_t a, int64_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  std::nth_element(ids.begin(), ids.begin() + *top_k, ids.end(), before);
  ids.resize(*top_k);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

double RandomNumber(uint64_t seed, const TokenPlace& place) {
  const uint64_t of_prompt =
      random::Mix(random::Mix(seed + random::kGamma) + static_cast<uint64_t>(place.prompt));
  // The output number `position`, from 0, of a splitmix64 that begins with this state.
  return random::Splitmix(of_prompt + static_cast<uint64_t>(place.position) * random::kGamma)
      .Uniform(0, 1);
}

std::optional<int64_t> NextToken(absl::Span<const double> logits, const Sampling& sampling,
                                 const TokenPlace& place) {
  for (const double logit : logits) {
    if (!std::isfinite(logit)) return std::nullopt;
  }
  // The first of the largest logits.
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (!sampling.temperature.has_value()) return largest - logits.begin();

  const std::vector<int64_t> ids = Candidates(logits, sampling.top_k);
  const auto weight = [&](int64_t id) {
    // The difference comes first: for every temperature, an overflow gives only a weight of 0.
    return std::exp((logits[id] - *largest) / *sampling.temperature);
  };
  double total = 0;
  for (const int64_t id : ids) total += weight(id);
  const double drawn = RandomNumber(sampling.seed, place) * total;
  double sum = 0;
  for (const int64_t id : ids) {
    sum += weight(id);
    if (sum > drawn) return id;
  }
  return ids.back();  // `drawn` was rounded up to the total
}

}  // namespace muster::models
