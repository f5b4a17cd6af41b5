#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "worker/train/evaluate/evaluate.h"

namespace muster::train {
namespace {

// Returns the rounds before which a pass asks, if each round takes `seconds`.
std::vector<int64_t> Questions(double seconds, int64_t rounds) {
  PassPace pace;
  std::vector<int64_t> asked;
  for (int64_t round = 0, last = 0; round < rounds; ++round) {
    if (!pace.Due(round)) continue;
    asked.push_back(round);
    pace.Asked(round, static_cast<double>(round - last) * seconds);
    last = round;
  }
  return asked;
}

TEST(PassPace, ShortRoundsAreAskedMoreAndMoreSeldom) {
  EXPECT_EQ(Questions(0.001, 1), (std::vector<int64_t>{}));
  EXPECT_EQ(Questions(0.001, 100), (std::vector<int64_t>{1, 3, 7, 15, 31, 63}));
  EXPECT_LT(Questions(0.001, 10000).size(), 30u) << "in 10 s";
}

TEST(PassPace, LongRoundsAreAskedBeforeEach) {
  EXPECT_EQ(Questions(20, 5), (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST(PassPace, RoundsThatBecomeLongAreAskedMoreOften) {
  PassPace pace;
  int64_t round = 0;
  for (int i = 0; i < 10; ++i) {
    while (!pace.Due(round)) ++round;
    pace.Asked(round, 0.1);
  }
  while (!pace.Due(round)) ++round;
  pace.Asked(round, 2000);  // the 1000 rounds took more than 1 s each
  EXPECT_TRUE(pace.Due(round + 1));
}

}  // namespace
}  // namespace muster::train
