#include "worker/data/scans.h"

#include <algorithm>
#include <bit>

#include "common/activity/activity.h"

namespace muster::data {
namespace {

// The bits of the exponent: only NaN and infinities have all of them set.
constexpr uint32_t kExponent = 0x7F800000;

uint32_t IsSpecial(float number) {
  return (std::bit_cast<uint32_t>(number) & kExponent) == kExponent;
}

// GCC 12 at -O2 vectorises only loops without extra cost; this loop must not be left scalar.
__attribute__((optimize("O3"))) bool AnySpecial(const float* numbers, size_t count) {
  uint32_t any = 0;
  for (size_t i = 0; i < count; ++i) {
    any |= (std::bit_cast<uint32_t>(numbers[i]) & kExponent) == kExponent;
  }
  return any != 0;
}

// GCC 12 at -O2 vectorises only loops without extra cost; this loop must not be left scalar.
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

std::optional<size_t> FirstNotFinite(const float* numbers, size_t count) {
  constexpr size_t kBlock = 1 << 20;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const bool any = AnySpecial(numbers + begin, std::min(kBlock, count - begin));
    activity::Moved();
    if (!any) continue;
    size_t i = begin;
    while (!IsSpecial(numbers[i])) ++i;
    return i;
  }
  return std::nullopt;
}

std::optional<size_t> FirstBeyond(const uint16_t* tokens, size_t count, int64_t vocab_size) {
  return Find(tokens, count, vocab_size);
}

std::optional<size_t> FirstBeyond(const uint32_t* tokens, size_t count, int64_t vocab_size) {
  return Find(tokens, count, vocab_size);
}

}  // namespace muster::data
