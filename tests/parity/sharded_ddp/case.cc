#include "tests/parity/sharded_ddp/case.h"

#include <cstddef>
#include <set>

namespace muster::parity {
namespace {

using Levels = std::array<int, kLevels.size()>;

// {factor, level, factor, level}
using Pair = std::array<int, 4>;

Case CaseOf(const Levels& levels) {
  return {.model = static_cast<ModelKind>(levels[0]),
          .optimizer = static_cast<OptimizerKind>(levels[1]),
          .precision = static_cast<PrecisionKind>(levels[2]),
          .accumulate = static_cast<Accumulate>(levels[3]),
          .reduce_every = static_cast<ReduceEvery>(levels[4]),
          .clip = static_cast<Clip>(levels[5]),
          .world_size = levels[6] + 1};
}

std::vector<Pair> PairsOf(const Case& one) {
  const Levels levels = LevelsOf(one);
  std::vector<Pair> pairs;
  for (int a = 0; a < static_cast<int>(levels.size()); ++a) {
    for (int b = a + 1; b < static_cast<int>(levels.size()); ++b) {
      pairs.push_back({a, levels[a], b, levels[b]});
    }
  }
  return pairs;
}

}  // namespace

Levels LevelsOf(const Case& one) {
  return {static_cast<int>(one.model),        static_cast<int>(one.optimizer),
          static_cast<int>(one.precision),    static_cast<int>(one.accumulate),
          static_cast<int>(one.reduce_every), static_cast<int>(one.clip),
          one.world_size - 1};
}

std::vector<Case> FullProduct() {
  std::vector<Case> all;
  Levels levels = {};
  for (;;) {
    all.push_back(CaseOf(levels));
    size_t factor = kLevels.size();
    while (factor > 0 && ++levels[factor - 1] == kLevels[factor - 1]) levels[--factor] = 0;
    if (factor == 0) return all;
  }
}

std::vector<Case> PairwiseCases() {
  const std::vector<Case> all = FullProduct();
  std::set<Pair> open;
  for (const Case& one : all) {
    for (const Pair& pair : PairsOf(one)) open.insert(pair);
  }
  std::vector<Case> chosen;
  while (!open.empty()) {
    const Case* best = nullptr;
    size_t most = 0;
    for (const Case& one : all) {
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

std::string Name(const Case& one) {
  constexpr const char* kModels[] = {"Gpt2", "Convnet", "Mixed"};
  constexpr const char* kOptimizers[] = {"AdamW", "Sgd"};
  constexpr const char* kPrecisions[] = {"Float32", "Bfloat16", "Float16"};
  return std::string(kModels[static_cast<int>(one.model)]) +
         kOptimizers[static_cast<int>(one.optimizer)] +
         kPrecisions[static_cast<int>(one.precision)] + "Accumulate" +
         std::to_string(one.micro_batches()) +
         (one.reduce_every == ReduceEvery::kStep ? "EachStep" : "EachMicroBatch") +
         (one.clip == Clip::kOn ? "Clip" : "Plain") + std::to_string(one.world_size);
}

}  // namespace muster::parity
