// fsdp against ddp: every pair of settings. The full product is full_parity_test (896 cases, by
// hand):
//   bazel test //tests/parity/fsdp:full_parity_test
#include "tests/parity/fsdp/parity.h"

#include "gtest/gtest.h"
#include "tests/parity/fsdp/case.h"

namespace muster::parity {
namespace {

class FsdpPairwiseParity : public testing::TestWithParam<FsdpCase> {};

INSTANTIATE_TEST_SUITE_P(All, FsdpPairwiseParity, testing::ValuesIn(PairwiseFsdpCases()),
                         [](const auto& info) { return Name(info.param); });

TEST_P(FsdpPairwiseParity, StateAfterEveryStepIsThatOfDdpToTheBit) { ExpectFsdpIsDdp(GetParam()); }

}  // namespace
}  // namespace muster::parity
