// Tests of fsdp against ddp: every pair of settings, and ways to reduce. The full product is
// full_parity_test (896 cases, run by hand):
//   bazel test //tests/parity/fsdp:full_parity_test
#include "tests/parity/fsdp/parity.h"

#include "gtest/gtest.h"
#include "tests/parity/fsdp/case.h"
#include "tests/parity/sharded_ddp/parity.h"
#include "tests/parity/sharded_ddp/training.h"

namespace muster::parity {
namespace {

class FsdpPairwiseParity : public testing::TestWithParam<FsdpCase> {};

INSTANTIATE_TEST_SUITE_P(All, FsdpPairwiseParity, testing::ValuesIn(PairwiseFsdpCases()),
                         [](const auto& info) { return Name(info.param); });

TEST_P(FsdpPairwiseParity, StateAfterEveryStepIsThatOfDdpToTheBit) { ExpectFsdpIsDdp(GetParam()); }

// Cases with the embedding and the head as units of their own. If both are tied, they are one unit
// that is called twice.
INSTANTIATE_TEST_SUITE_P(Vocabulary, FsdpPairwiseParity, testing::ValuesIn([] {
                           std::vector<FsdpCase> cases;
                           for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
                             for (const Mask mask :
                                  {Mask::kNone, Mask::kFirstUnit, Mask::kEveryOtherUnit}) {
                               const bool odd =
                                   (static_cast<int>(model) + static_cast<int>(mask)) % 2 == 1;
                               cases.push_back({.model = model,
                                                .reshard_after_forward = mask != Mask::kFirstUnit,
                                                .mask = mask,
                                                .recompute = odd,
                                                .micro_batches = odd ? 1 : 2,
                                                .world_size = 2 + static_cast<int>(odd),
                                                .vocabulary = true});
                             }
                           }
                           return cases;
                         }()),
                         [](const auto& info) { return Name(info.param); });

INSTANTIATE_TEST_SUITE_P(Replicate, FsdpPairwiseParity,
                         testing::Values(FsdpCase{.model = ModelKind::kGpt2,
                                                  .mask = Mask::kPartsOfUnits,
                                                  .micro_batches = 2,
                                                  .world_size = 3,
                                                  .replicate = true},
                                         FsdpCase{.model = ModelKind::kLlama,
                                                  .reshard_after_forward = false,
                                                  .recompute = true,
                                                  .world_size = 2,
                                                  .vocabulary = true,
                                                  .replicate = true}),
                         [](const auto& info) { return Name(info.param); });

// Precisions, optimizers, and the ways to reduce that change bits.
struct Reduction {
  const char* name;
  Case base;
  bool in_bfloat16 = false;
  Closeness closeness = Closeness::kBitwise;
};

class FsdpReduction : public testing::TestWithParam<Reduction> {};

INSTANTIATE_TEST_SUITE_P(
    All, FsdpReduction,
    testing::Values(Reduction{.name = "Autocast",
                              .base = {.model = ModelKind::kGpt2,
                                       .precision = PrecisionKind::kBfloat16,
                                       .accumulate = Accumulate::kThree,
                                       .world_size = 2}},
                    Reduction{.name = "LossScale",
                              .base = {.model = ModelKind::kConvnet,
                                       .optimizer = OptimizerKind::kSgdMomentum,
                                       .precision = PrecisionKind::kFloat16,
                                       .clip = Clip::kOn,
                                       .world_size = 3}},
                    Reduction{.name = "MixedSgd",
                              .base = {.model = ModelKind::kMixed,
                                       .optimizer = OptimizerKind::kSgdMomentum,
                                       .precision = PrecisionKind::kFloat16,
                                       .accumulate = Accumulate::kThree,
                                       .world_size = 4}},
                    Reduction{.name = "Lion",
                              .base = {.model = ModelKind::kGpt2,
                                       .optimizer = OptimizerKind::kLion,
                                       .accumulate = Accumulate::kThree,
                                       .clip = Clip::kOn,
                                       .world_size = 3}},
                    Reduction{.name = "LionMixed",
                              .base = {.model = ModelKind::kMixed,
                                       .optimizer = OptimizerKind::kLion,
                                       .precision = PrecisionKind::kBfloat16,
                                       .world_size = 4}},
                    Reduction{.name = "Adadelta",
                              .base = {.model = ModelKind::kMixed,
                                       .optimizer = OptimizerKind::kAdadelta,
                                       .accumulate = Accumulate::kThree,
                                       .clip = Clip::kOn,
                                       .world_size = 3}},
                    Reduction{.name = "SeveralOptimizers",
                              .base = {.model = ModelKind::kMixed,
                                       .optimizer = OptimizerKind::kSeveral,
                                       .accumulate = Accumulate::kThree,
                                       .clip = Clip::kOn,
                                       .world_size = 3}},
                    Reduction{.name = "EachMicroBatch",
                              .base = {.model = ModelKind::kGpt2,
                                       .accumulate = Accumulate::kThree,
                                       .reduce_every = ReduceEvery::kMicroBatch,
                                       .clip = Clip::kOn,
                                       .world_size = 3},
                              .closeness = Closeness::kOtherOrder},
                    Reduction{.name = "EachMicroBatchMixed",
                              .base = {.model = ModelKind::kMixed,
                                       .optimizer = OptimizerKind::kSgdMomentum,
                                       .accumulate = Accumulate::kThree,
                                       .reduce_every = ReduceEvery::kMicroBatch,
                                       .world_size = 2},
                              .closeness = Closeness::kOtherOrder},
                    Reduction{.name = "Bfloat16",
                              .base = {.model = ModelKind::kGpt2,
                                       .optimizer = OptimizerKind::kSgdMomentum,
                                       .clip = Clip::kOn,
                                       .world_size = 3},
                              .in_bfloat16 = true,
                              .closeness = Closeness::kRoundedToBfloat16}),
    [](const auto& info) { return info.param.name; });

TEST_P(FsdpReduction, StateAfterEveryStepIsThatOfDdpWithinTheBoundsOfTheWayToReduce) {
  const Reduction& one = GetParam();
  ExpectDdpOf(one.base,
              parallel::FsdpOptions{.units = UnitsOf(one.base.model),
                                    .reduce_every = one.base.reduce_every == ReduceEvery::kStep
                                                        ? parallel::ReduceEvery::kStep
                                                        : parallel::ReduceEvery::kMicroBatch,
                                    .reduce_in_bfloat16 = one.in_bfloat16},
              one.closeness);
}

// Tests that real models compute in bfloat16; tests in worker/parallel/fsdp check the values with a
// small model. The first losses are those of float32 but for the rounding of weights and
// activations (2^-9 each), and the losses fall.
TEST(FsdpParametersInBfloat16, LanguageModelsTrain) {
  for (const ModelKind model : {ModelKind::kGpt2, ModelKind::kLlama}) {
    const Case one{.model = model, .world_size = 2};
    const auto train = [&](const train::StrategyConfig& strategy) {
      train::Job job = JobOf(one, strategy);
      job.optimizer->groups.clear();
      job.optimizer->lr = 0.01;
      return Train(job, [&] { return MakeWorkload(model, {.dropout = 0}); }, one.world_size, 20);
    };
    const auto ddp = train(Ddp());
    const auto fsdp = train(parallel::FsdpOptions{.parameters_in_bfloat16 = true});
    if (HasFailure()) return;
    EXPECT_NEAR(fsdp[0].loss_sums[0], ddp[0].loss_sums[0], 0.01) << Name(one);
    EXPECT_NE(fsdp[0].loss_sums[0], ddp[0].loss_sums[0]) << Name(one);
    EXPECT_LT(fsdp[19].loss_sums[0], fsdp[0].loss_sums[0] - 0.1) << Name(one);
  }
}

}  // namespace
}  // namespace muster::parity
