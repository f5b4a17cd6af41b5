#include "common/glob/glob.h"

#include <cstddef>

namespace muster {

bool GlobMatches(std::string_view pattern, std::string_view text) {
  constexpr size_t kNone = std::string_view::npos;
  size_t p = 0, t = 0;
  // The positions after the last star, and in the text after the characters that this star matches
  // so far. Only the last star may have to match more: earlier stars match as little as possible,
  // which leaves the longest rest.
  size_t behind_star = kNone, rest = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      behind_star = ++p;
      rest = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (behind_star != kNone) {
      p = behind_star;
      t = ++rest;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace muster
