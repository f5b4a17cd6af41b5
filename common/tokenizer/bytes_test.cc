#include "common/tokenizer/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::tokenizer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Bytes, ATextIsItsBytes) {
  EXPECT_THAT(TokensOfBytes("aé\n"), ElementsAre(97, 0xc3, 0xa9, 10));
  EXPECT_THAT(TokensOfBytes(std::string("\0\xff", 2)), ElementsAre(0, 255));
  EXPECT_THAT(TokensOfBytes(""), IsEmpty());
}

TEST(Bytes, ATextComesBack) {
  const std::string text = "Gewähr, 保証 🂡\n";
  const std::vector<uint32_t> tokens = TokensOfBytes(text);
  EXPECT_EQ(TextOfBytes({tokens.begin(), tokens.end()}), text);
}

TEST(Bytes, WhatIsNoUtf8IsReplaced) {
  EXPECT_EQ(TextOfBytes({'a', 0xc3, 'b'}), "a\uFFFDb") << "half a character";
  EXPECT_EQ(TextOfBytes({'a', 256, 'b', -1}), "a\uFFFDb\uFFFD") << "no bytes";
  EXPECT_EQ(TextOfBytes({0xe2, 0x82}), "\uFFFD\uFFFD") << "cut off at the end";
}

}  // namespace
}  // namespace muster::tokenizer
