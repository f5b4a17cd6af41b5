#include "worker/data/max_token.h"

#include <algorithm>

#include "common/activity/activity.h"

namespace muster::data {
namespace {

// GCC 12 at -O2 vectorises only what costs nothing; this loop must not be left scalar.
template <typename Token>
__attribute__((optimize("O3"))) Token Max(const Token* tokens, size_t count) {
  Token max = 0;
  for (size_t i = 0; i < count; ++i) max = std::max(max, tokens[i]);
  return max;
}

template <typename Token>
std::optional<size_t> Find(const Token* tokens, size_t count, int64_t vocab_size) {
  constexpr size_t kBlock = 1 << 16;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t size = std::min(kBlock, count - begin);
    activity::Moved();
    if (static_cast<int64_t>(Max(tokens + begin, size)) < vocab_size) continue;
    for (size_t i = begin; i < begin + size; ++i) {
      if (static_cast<int64_t>(tokens[i]) >= vocab_size) return i;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<size_t> FirstBeyond(const uint16_t* tokens, size_t count, int64_t vocab_size) {
  return Find(tokens, count, vocab_size);
}

std::optional<size_t> FirstBeyond(const uint32_t* tokens, size_t count, int64_t vocab_size) {
  return Find(tokens, count, vocab_size);
}

}  // namespace muster::data
