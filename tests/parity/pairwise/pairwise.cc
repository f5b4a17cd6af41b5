#include "tests/parity/pairwise/pairwise.h"

#include <array>
#include <cstddef>
#include <set>

namespace muster::parity {
namespace {

// {factor, level, factor, level}
using Pair = std::array<int, 4>;

std::vector<Pair> PairsOf(const std::vector<int>& levels) {
  std::vector<Pair> pairs;
  for (int a = 0; a < static_cast<int>(levels.size()); ++a) {
    for (int b = a + 1; b < static_cast<int>(levels.size()); ++b) {
      pairs.push_back({a, levels[a], b, levels[b]});
    }
  }
  return pairs;
}

}  // namespace

std::vector<std::vector<int>> Product(const std::vector<int>& levels) {
  std::vector<std::vector<int>> all;
  std::vector<int> next(levels.size());
  for (;;) {
    all.push_back(next);
    size_t factor = levels.size();
    while (factor > 0 && ++next[factor - 1] == levels[factor - 1]) next[--factor] = 0;
    if (factor == 0) return all;
  }
}

std::vector<std::vector<int>> Pairwise(const std::vector<int>& levels) {
  const auto all = Product(levels);
  std::set<Pair> open;
  for (const auto& one : all) {
    for (const Pair& pair : PairsOf(one)) open.insert(pair);
  }
  std::vector<std::vector<int>> chosen;
  while (!open.empty()) {
    const std::vector<int>* best = nullptr;
    size_t most = 0;
    for (const auto& one : all) {
      size_t covers = 0;
      for (const Pair& pair : PairsOf(one)) covers += open.count(pair);
      if (covers > most) {
        most = covers;
        best = &one;
      }
    }
    for (const Pair& pair : PairsOf(*best)) open.erase(pair);
    chosen.push_back(*best);
  }
  return chosen;
}

}  // namespace muster::parity
