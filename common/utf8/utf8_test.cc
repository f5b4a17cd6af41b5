#include "common/utf8/utf8.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(Utf8, WhatIsNoCharacterIsReplacedByteByByte) {
  EXPECT_EQ(ValidUtf8("a\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"),
            "a\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(ValidUtf8("a\x80z"), "a\xef\xbf\xbdz");
  EXPECT_EQ(ValidUtf8("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(ValidUtf8("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(ValidUtf8("\xf4\x90\x80\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(ValidUtf8("a\xe2\x82"), "a\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(Utf8, ACharacterHasItsLength) {
  const std::string text = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xc3";
  EXPECT_EQ(Utf8CharacterLength(text, 0), 1u);
  EXPECT_EQ(Utf8CharacterLength(text, 1), 2u);
  EXPECT_EQ(Utf8CharacterLength(text, 2), 0u) << "inside one";
  EXPECT_EQ(Utf8CharacterLength(text, 3), 3u);
  EXPECT_EQ(Utf8CharacterLength(text, 6), 4u);
  EXPECT_EQ(Utf8CharacterLength(text, 10), 0u) << "cut off";
}

TEST(Utf8, ThePrefixEndsBeforeAHalfCharacter) {
  EXPECT_EQ(ValidUtf8Prefix("a\xc3\xa4"), 3u);
  EXPECT_EQ(ValidUtf8Prefix("a\xc3"), 1u);
  EXPECT_EQ(ValidUtf8Prefix("\xff"), 0u);
  EXPECT_EQ(ValidUtf8Prefix(""), 0u);
}

}  // namespace
}  // namespace muster
