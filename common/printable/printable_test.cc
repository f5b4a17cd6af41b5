#include "common/printable/printable.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

std::string Printable(const std::string& text) {
  std::string out;
  EXPECT_EQ(AppendPrintable(text, Follows::kNothing, &out), text.size());
  return out;
}

TEST(Printable, TextStaysAsItIs) {
  const std::string text = "To be,\n\tor not – 保証 שלום \xc3\xa9 \xc2\xa0 \xf0\x9f\x99\x82\r\n.";
  EXPECT_EQ(Printable(text), text);
}

TEST(Printable, ControlCharactersAreShownByTheirCodes) {
  EXPECT_EQ(Printable("\x1b[31mred\r"), "\\x1b[31mred\\x0d");
  EXPECT_EQ(Printable("a\rb"), "a\\x0db");
  EXPECT_EQ(Printable(std::string("\0\x07\x7f", 3)), "\\x00\\x07\\u007f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m")
      << "the eight-bit form of an escape";
}

TEST(Printable, CharactersThatChangeTheDirectionAreShownByTheirCodes) {
  EXPECT_EQ(Printable("a\u202eb\u2066c\u2069"), "a\\u202eb\\u2066c\\u2069");
  EXPECT_EQ(Printable("\u2028\u2029"), "\\u2028\\u2029");
}

TEST(Printable, BytesThatAreNoUtf8AreShownByTheirCodes) {
  EXPECT_EQ(Printable("a\x9b\xff"), "a\\x9b\\xff");
  EXPECT_EQ(Printable("\xc2"), "\\xc2") << "cut off";
  EXPECT_EQ(Printable("\xe2\x80\x1b[m"), "\\xe2\\x80\\x1b[m") << "cut off by an escape";
  EXPECT_EQ(Printable("\xc0\x9b"), "\\xc0\\x9b") << "an overlong form of U+001B";
}

TEST(Printable, WhatDependsOnMoreIsLeft) {
  std::string out;
  EXPECT_EQ(AppendPrintable("ab\r", Follows::kMore, &out), 2);
  EXPECT_EQ(AppendPrintable("\xe2\x80", Follows::kMore, &out), 0);
  EXPECT_EQ(AppendPrintable("c\xf0\x9f", Follows::kMore, &out), 1);
  EXPECT_EQ(out, "abc");
  EXPECT_EQ(AppendPrintable("\x80", Follows::kMore, &out), 1) << "never the beginning of one";
}

TEST(Printable, OneLineHasNoEndsOfLines) {
  EXPECT_EQ(PrintableLine("a\n\tb\r\n\x1b"), "a\\n\\tb\\x0d\\n\\x1b");
}

}  // namespace
}  // namespace muster
