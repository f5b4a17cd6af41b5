#include "tests/parity/sharded_ddp/case.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace muster::parity {
namespace {

TEST(Cases, TheFullProductHasEachCombinationOnce) {
  const auto all = FullProduct();
  EXPECT_EQ(all.size(), 3 * 3 * 3 * 2 * 2 * 2 * 4);
  std::set<std::array<int, kLevels.size()>> different;
  std::set<std::string> names;
  for (const Case& one : all) {
    different.insert(LevelsOf(one));
    names.insert(Name(one));
  }
  EXPECT_EQ(different.size(), all.size());
  EXPECT_EQ(names.size(), all.size());
}

TEST(Cases, ThePairwiseOnesHaveEveryPairOfLevels) {
  const auto cases = PairwiseCases();
  for (size_t a = 0; a < kLevels.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      std::set<std::pair<int, int>> pairs;
      for (const Case& one : cases) {
        const auto levels = LevelsOf(one);
        EXPECT_LT(levels[a], kLevels[a]);
        pairs.insert({levels[a], levels[b]});
      }
      EXPECT_EQ(pairs.size(), kLevels[a] * kLevels[b]) << "factors " << b << " and " << a;
    }
  }
  // The pairs of the two largest factors need as many cases; there should not be many more.
  EXPECT_GE(cases.size(), 4 * 3);
  EXPECT_LE(cases.size(), 20);
}

}  // namespace
}  // namespace muster::parity
