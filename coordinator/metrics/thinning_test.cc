#include "coordinator/metrics/thinning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <set>

namespace muster::metrics {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The newest 48 rows, then 2 rows in each band: ages 48 to 51 at stride 2, 52 to 59 at 4, 60 to 75
// at 8, and so on.
constexpr uint64_t kKept = 96;

struct Case {
  const char* name;
  uint64_t number;
  uint64_t newest;
  bool kept;
};
void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }
class KeepsTest : public ::testing::TestWithParam<Case> {};

TEST_P(KeepsTest, ByTheAgeAndTheStrideOfItsBand) {
  EXPECT_EQ(Keeps(GetParam().number, GetParam().newest, kKept), GetParam().kept);
}

INSTANTIATE_TEST_SUITE_P(
    All, KeepsTest,
    ::testing::Values(Case{"TheNewest", 1001, 1001, true}, Case{"TheLastWholeOne", 954, 1001, true},
                      Case{"OddInBand1", 953, 1001, false}, Case{"EvenInBand1", 952, 1001, true},
                      Case{"EvenAtTheEndOfBand1", 950, 1001, true},
                      Case{"EvenInBand2", 946, 1001, false}, Case{"FourthInBand2", 948, 1001, true},
                      Case{"FourthAtTheEndOfBand2", 944, 1001, true},
                      Case{"FourthInBand3", 940, 1001, false},
                      Case{"EighthInBand3", 936, 1001, true}, Case{"TheFirst", 1, 1001, false},
                      Case{"TheFirstOfFew", 1, 48, true}, Case{"TheFirstOfOneMore", 1, 49, false},
                      Case{"BeyondTheNewest", 2000, 1001, true}),
    [](const auto& info) { return info.param.name; });

TEST(Thinning, WhatAStepDropsIsWhatIsNotKeptAnyMore) {
  for (const uint64_t kept : {kMinKept, kMinKept + 1, kKept, uint64_t{300}}) {
    std::set<uint64_t> rows;
    for (uint64_t newest = 1; newest <= 5000; ++newest) {
      rows.insert(newest);
      for (const uint64_t number : DroppedBy(newest, kept)) {
        EXPECT_EQ(rows.erase(number), 1) << number << " was gone before step " << newest;
      }
      ASSERT_LE(rows.size(), kept) << "at step " << newest;
      if (newest % 487 != 0) continue;
      std::set<uint64_t> expected;
      for (uint64_t number = 1; number <= newest; ++number) {
        if (Keeps(number, newest, kept)) expected.insert(number);
      }
      ASSERT_EQ(rows, expected) << "at step " << newest << ", bound " << kept;
    }
  }
}

TEST(Thinning, WhatIsDroppedStaysDropped) {
  for (uint64_t number = 1; number <= 300; ++number) {
    bool gone = false;
    for (uint64_t newest = number; newest <= 4000; ++newest) {
      const bool kept = Keeps(number, newest, kKept);
      ASSERT_FALSE(gone && kept) << number << " comes back at " << newest;
      gone = !kept;
    }
  }
}

TEST(Thinning, TheDefaultBoundReachesBackToTheBeginningOfTheLongestJob) {
  constexpr uint64_t kLongest = uint64_t{1} << 32;
  EXPECT_TRUE(Keeps(uint64_t{1} << kBands, kLongest, kDefaultKept));
  EXPECT_THAT(DroppedBy(10000, kDefaultKept), IsEmpty());
  EXPECT_THAT(DroppedBy(10001, kDefaultKept), ElementsAre(1));
  EXPECT_THAT(DroppedBy(10002, kDefaultKept), IsEmpty());
}

}  // namespace
}  // namespace muster::metrics
