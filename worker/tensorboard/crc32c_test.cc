#include "worker/tensorboard/event.h"

#include <gtest/gtest.h>

#include <string>

namespace muster::tensorboard {
namespace {

// The examples of RFC 3720, B.4.
TEST(Crc32c, GivesTheExamplesOfTheStandard) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string rising, falling;
  for (char byte = 0; byte < 32; ++byte) rising += byte;
  for (char byte = 31; byte >= 0; --byte) falling += byte;
  EXPECT_EQ(Crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(Crc32c(falling), 0x113fdb5cu);
}

TEST(Crc32c, GivesTheCheckValueOfTheAlgorithm) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
}

}  // namespace
}  // namespace muster::tensorboard
