// Tests of every combination of settings. They are run by hand, because they take minutes:
//   bazel test //tests/parity/sharded_ddp:full_parity_test
#include "gtest/gtest.h"
#include "tests/parity/sharded_ddp/case.h"
#include "tests/parity/sharded_ddp/parity.h"

namespace muster::parity {
namespace {

class FullParity : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(All, FullParity, testing::ValuesIn(FullProduct()),
                         [](const auto& info) { return Name(info.param); });

TEST_P(FullParity, StateAfterEveryStepIsThatOfDdp) { ExpectParity(GetParam()); }

}  // namespace
}  // namespace muster::parity
