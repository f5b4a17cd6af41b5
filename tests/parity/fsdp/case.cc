#include "tests/parity/fsdp/case.h"

#include "tests/parity/pairwise/pairwise.h"

namespace muster::parity {
namespace {

const std::vector<int> kFsdpLevels = {4, 2, 7, 2, 2, 4};

std::vector<FsdpCase> CasesOf(const std::vector<std::vector<int>>& all) {
  std::vector<FsdpCase> cases;
  for (const auto& levels : all) {
    cases.push_back({.model = static_cast<ModelKind>(levels[0]),
                     .reshard_after_forward = levels[1] == 0,
                     .mask = static_cast<Mask>(levels[2]),
                     .recompute = levels[3] == 1,
                     .micro_batches = levels[4] + 1,
                     .world_size = levels[5] + 1});
  }
  return cases;
}

}  // namespace

std::vector<FsdpCase> FullFsdpProduct() { return CasesOf(Product(kFsdpLevels)); }

std::vector<FsdpCase> PairwiseFsdpCases() { return CasesOf(Pairwise(kFsdpLevels)); }

std::string Name(const FsdpCase& one) {
  constexpr const char* kModels[] = {"Gpt2", "Convnet", "Mixed", "Llama"};
  constexpr const char* kMasks[] = {"AllTrain", "EveryOtherUnit", "PartsOfUnits", "FirstUnit",
                                    "LastUnit", "Root",           "AllButBiases"};
  return std::string(kModels[static_cast<int>(one.model)]) +
         (one.reshard_after_forward ? "Reshard" : "Keep") + kMasks[static_cast<int>(one.mask)] +
         (one.recompute ? "Recompute" : "") + (one.vocabulary ? "Vocabulary" : "") +
         (one.replicate ? "Replicate" : "") + "Accumulate" + std::to_string(one.micro_batches) +
         "Ranks" + std::to_string(one.world_size);
}

}  // namespace muster::parity
