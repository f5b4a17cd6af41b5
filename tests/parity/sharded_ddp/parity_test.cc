// Tests of sharded_ddp against ddp: every pair of settings, and gradients that are sent in
// bfloat16. The full product of all settings (864 cases) is run by hand:
//     bazel test //tests/parity/sharded_ddp:full_parity_test
#include "tests/parity/sharded_ddp/parity.h"

#include "gtest/gtest.h"
#include "tests/parity/sharded_ddp/case.h"

namespace muster::parity {
namespace {

class PairwiseParity : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(All, PairwiseParity, testing::ValuesIn(PairwiseCases()),
                         [](const auto& info) { return Name(info.param); });

TEST_P(PairwiseParity, StateAfterEveryStepIsThatOfDdp) { ExpectParity(GetParam()); }

// Tests of optimizers that are not in the pairs.
class OtherOptimizers : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(All, OtherOptimizers,
                         testing::Values(Case{.model = ModelKind::kGpt2,
                                              .optimizer = OptimizerKind::kAdadelta,
                                              .clip = Clip::kOn,
                                              .world_size = 3},
                                         Case{.model = ModelKind::kMixed,
                                              .optimizer = OptimizerKind::kAdadelta,
                                              .precision = PrecisionKind::kFloat16,
                                              .accumulate = Accumulate::kThree,
                                              .world_size = 4},
                                         Case{.model = ModelKind::kGpt2,
                                              .optimizer = OptimizerKind::kSeveral,
                                              .world_size = 3},
                                         Case{.model = ModelKind::kMixed,
                                              .optimizer = OptimizerKind::kSeveral,
                                              .precision = PrecisionKind::kFloat16,
                                              .accumulate = Accumulate::kThree,
                                              .clip = Clip::kOn,
                                              .world_size = 4}),
                         [](const auto& info) { return Name(info.param); });

TEST_P(OtherOptimizers, StateAfterEveryStepIsThatOfDdp) { ExpectParity(GetParam()); }

class Bfloat16Reduction : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(All, Bfloat16Reduction,
                         testing::Values(Case{.model = ModelKind::kGpt2, .world_size = 3},
                                         Case{.model = ModelKind::kGpt2,
                                              .optimizer = OptimizerKind::kSgdMomentum,
                                              .accumulate = Accumulate::kThree,
                                              .clip = Clip::kOn,
                                              .world_size = 2},
                                         Case{.model = ModelKind::kMixed,
                                              .optimizer = OptimizerKind::kSgdMomentum,
                                              .accumulate = Accumulate::kThree,
                                              .reduce_every = ReduceEvery::kMicroBatch,
                                              .world_size = 4},
                                         Case{.model = ModelKind::kConvnet,
                                              .optimizer = OptimizerKind::kSgdMomentum,
                                              .precision = PrecisionKind::kFloat16,
                                              .world_size = 1}),
                         [](const auto& info) { return Name(info.param); });

TEST_P(Bfloat16Reduction, OneStepIsNearThatOfDdp) { ExpectParityOfReductionInBfloat16(GetParam()); }

}  // namespace
}  // namespace muster::parity
