#include "client/cli/terminal/printable.h"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

TEST(Printable, TextStaysAsItIs) {
  const std::string text = "To be,\n\tor not – 保証 \xc3\xa9 \xc2\xa0.";
  EXPECT_EQ(Printable(text), text);
  EXPECT_EQ(PrintableLine("a\n\tb"), "a\\n\\tb");
}

TEST(Printable, ControlCharactersAreShownByTheirCodes) {
  EXPECT_EQ(Printable("\x1b[31mred\r"), "\\x1b[31mred\\x0d");
  EXPECT_EQ(Printable(std::string("\0\x07\x7f", 3)), "\\x00\\x07\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m")
      << "the eight-bit form of an escape";
  EXPECT_EQ(Printable("\xc2"), "\xc2") << "cut off";
}

}  // namespace
}  // namespace muster::cli
