#include "tests/parity/sharded_ddp/case.h"

#include "tests/parity/pairwise/pairwise.h"

namespace muster::parity {
namespace {

using Levels = std::array<int, kLevels.size()>;

Case CaseOf(const std::vector<int>& levels) {
  return {.model = static_cast<ModelKind>(levels[0]),
          .optimizer = static_cast<OptimizerKind>(levels[1]),
          .precision = static_cast<PrecisionKind>(levels[2]),
          .accumulate = static_cast<Accumulate>(levels[3]),
          .reduce_every = static_cast<ReduceEvery>(levels[4]),
          .clip = static_cast<Clip>(levels[5]),
          .world_size = levels[6] + 1};
}

std::vector<Case> CasesOf(const std::vector<std::vector<int>>& all) {
  std::vector<Case> cases;
  for (const auto& levels : all) cases.push_back(CaseOf(levels));
  return cases;
}

}  // namespace

Levels LevelsOf(const Case& one) {
  return {static_cast<int>(one.model),
          static_cast<int>(one.optimizer),
          static_cast<int>(one.precision),
          static_cast<int>(one.accumulate),
          static_cast<int>(one.reduce_every),
          static_cast<int>(one.clip),
          one.world_size - 1};
}

std::vector<Case> FullProduct() { return CasesOf(Product({kLevels.begin(), kLevels.end()})); }

std::vector<Case> PairwiseCases() { return CasesOf(Pairwise({kLevels.begin(), kLevels.end()})); }

std::string Name(const Case& one) {
  constexpr const char* kModels[] = {"Gpt2", "Convnet", "Mixed", "Llama"};
  constexpr const char* kOptimizers[] = {"AdamW", "Sgd", "Lion", "Adadelta", "Several"};
  constexpr const char* kPrecisions[] = {"Float32", "Bfloat16", "Float16"};
  return std::string(kModels[static_cast<int>(one.model)]) +
         kOptimizers[static_cast<int>(one.optimizer)] +
         kPrecisions[static_cast<int>(one.precision)] + "Accumulate" +
         std::to_string(one.micro_batches()) +
         (one.reduce_every == ReduceEvery::kStep ? "EachStep" : "EachMicroBatch") +
         (one.clip == Clip::kOn ? "Clip" : "Plain") + std::to_string(one.world_size);
}

}  // namespace muster::parity
