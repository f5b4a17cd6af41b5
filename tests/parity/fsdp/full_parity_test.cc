// Tests of every combination of settings. They are run by hand, because they take minutes:
//   bazel test //tests/parity/fsdp:full_parity_test
#include "gtest/gtest.h"
#include "tests/parity/fsdp/case.h"
#include "tests/parity/fsdp/parity.h"

namespace muster::parity {
namespace {

class FsdpFullParity : public testing::TestWithParam<FsdpCase> {};

INSTANTIATE_TEST_SUITE_P(All, FsdpFullParity, testing::ValuesIn(FullFsdpProduct()),
                         [](const auto& info) { return Name(info.param); });

TEST_P(FsdpFullParity, StateAfterEveryStepIsThatOfDdpToTheBit) { ExpectFsdpIsDdp(GetParam()); }

}  // namespace
}  // namespace muster::parity
