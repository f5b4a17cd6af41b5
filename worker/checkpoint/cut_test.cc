#include "worker/checkpoint/cut.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::checkpoint {
namespace {

using ::testing::ElementsAre;

TEST(CutEvenlyTest, PartsEndAtMultiplesOfSixteen) {
  const auto cuts = CutEvenly({40, 1, 30}, 2);  // 71 elements, 5 grains
  EXPECT_THAT(cuts[0], ElementsAre(Cut{0, 0, 32}));
  EXPECT_THAT(cuts[1], ElementsAre(Cut{0, 32, 40}, Cut{1, 0, 1}, Cut{2, 0, 30}));
}

TEST(CutEvenlyTest, MoreRanksThanElementsLeavesSomeWithNothing) {
  const auto cuts = CutEvenly({3, 0}, 4);
  size_t pieces = 0;
  for (const auto& part : cuts) pieces += part.size();
  EXPECT_EQ(pieces, 2u);
  EXPECT_EQ(CutEvenly({}, 3).size(), 3u);
}

TEST(CutEvenlyTest, EveryElementExactlyOnceInEvenPartsForRandomShapes) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<int64_t> elements(random() % 12);
    for (int64_t& n : elements) n = random() % 4 == 0 ? random() % 2 : random() % 200;
    const int64_t parts = 1 + random() % 6;
    const auto cuts = CutEvenly(elements, parts);
    ASSERT_EQ(cuts.size(), parts);
    std::vector<int64_t> covered(elements.size(), 0), pieces(elements.size(), 0);
    const int64_t total = std::accumulate(elements.begin(), elements.end(), int64_t{0});
    int64_t offset = 0, smallest = INT64_MAX, largest = 0;
    for (int64_t part = 0; part < parts; ++part) {
      int64_t size = 0;
      for (const Cut& cut : cuts[part]) {
        ASSERT_EQ(cut.begin, covered[cut.tensor]);
        ASSERT_LE(cut.end, elements[cut.tensor]);
        ASSERT_TRUE(cut.end > cut.begin || elements[cut.tensor] == 0);
        covered[cut.tensor] = cut.end;
        ++pieces[cut.tensor];
        size += cut.end - cut.begin;
      }
      offset += size;
      if (part + 1 < parts && offset < total) EXPECT_EQ(offset % 16, 0);
      smallest = std::min(smallest, size);
      largest = std::max(largest, size);
    }
    EXPECT_EQ(covered, elements);
    for (int64_t n : pieces) EXPECT_GE(n, 1);
    EXPECT_LE(largest - smallest, 32);
  }
}

}  // namespace
}  // namespace muster::checkpoint
