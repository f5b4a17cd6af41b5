#include <gtest/gtest.h>

#include <cstdint>

#include "worker/train/evaluate/evaluation_scope.h"

namespace muster::train {
namespace {

TEST(HasMemoryForAll, HalfOfWhatIsAvailableMayBeUsed) {
  EXPECT_TRUE(HasMemoryForAll({.needed = 500, .available = 1000}));
  EXPECT_FALSE(HasMemoryForAll({.needed = 501, .available = 1000}));
  EXPECT_FALSE(HasMemoryForAll({.needed = 1, .available = 0}));
}

TEST(HasMemoryForAll, RanksOfANodeShareItsMemory) {
  EXPECT_TRUE(HasMemoryForAll({.needed = 125, .available = 1000, .ranks = 4}));
  EXPECT_FALSE(HasMemoryForAll({.needed = 126, .available = 1000, .ranks = 4}));
}

TEST(HasMemoryForAll, WhatAnEarlierPassHasTakenIsThere) {
  EXPECT_TRUE(HasMemoryForAll({.needed = 800, .kept = 800, .available = 0}));
  EXPECT_TRUE(HasMemoryForAll({.needed = 800, .kept = 900, .available = 0}));
  EXPECT_TRUE(HasMemoryForAll({.needed = 800, .kept = 700, .available = 200}));
  EXPECT_FALSE(HasMemoryForAll({.needed = 801, .kept = 700, .available = 200}));
}

TEST(HasMemoryForAll, WhatIsNotKnownIsEnough) {
  EXPECT_TRUE(HasMemoryForAll({.needed = uint64_t{1} << 50, .available = UINT64_MAX, .ranks = 8}));
  EXPECT_TRUE(HasMemoryForAll({.needed = 0, .available = 0})) << "a model without parameters";
}

}  // namespace
}  // namespace muster::train
