// The combinations of settings in which sharded_ddp is compared with ddp: all combinations, and a
// few that contain every pair. Pure.
#ifndef MUSTER_TESTS_PARITY_SHARDED_DDP_CASE_H_
#define MUSTER_TESTS_PARITY_SHARDED_DDP_CASE_H_

#include <array>
#include <string>
#include <vector>

namespace muster::parity {

enum class ModelKind { kGpt2, kConvnet, kMixed, kLlama };
enum class OptimizerKind { kAdamW, kSgdMomentum, kLion, kAdadelta, kSeveral };
enum class PrecisionKind { kFloat32, kBfloat16, kFloat16 };
enum class Accumulate { kOne, kThree };
enum class ReduceEvery { kStep, kMicroBatch };
enum class Clip { kOff, kOn };

struct Case {
  ModelKind model = ModelKind::kGpt2;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  PrecisionKind precision = PrecisionKind::kFloat32;
  Accumulate accumulate = Accumulate::kOne;
  ReduceEvery reduce_every = ReduceEvery::kStep;
  Clip clip = Clip::kOff;
  int world_size = 1;

  int micro_batches() const { return accumulate == Accumulate::kOne ? 1 : 3; }
  // True if sharded_ddp adds in ddp's order.
  bool bitwise() const {
    return reduce_every == ReduceEvery::kStep || accumulate == Accumulate::kOne;
  }
};

// The number of levels of each setting, in the order of the struct; without kLlama, kAdadelta and
// kSeveral. LevelsOf returns the level of each setting of a case.
inline constexpr std::array<int, 7> kLevels = {3, 3, 3, 2, 2, 2, 4};
std::array<int, kLevels.size()> LevelsOf(const Case& one);

std::vector<Case> FullProduct();

// Cases that contain every pair of levels of two factors at least once (tests/parity/pairwise).
std::vector<Case> PairwiseCases();

// A unique name for each case, of letters and digits:
// "Gpt2AdamWBfloat16Accumulate3EachMicroBatchClip4".
std::string Name(const Case& one);

}  // namespace muster::parity

#endif  // MUSTER_TESTS_PARITY_SHARDED_DDP_CASE_H_
