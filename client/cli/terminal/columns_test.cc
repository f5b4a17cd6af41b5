#include "client/cli/terminal/escaped_stream.h"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

TEST(Columns, ALineIsCutBeforeTheLastColumn) {
  EXPECT_EQ(CutToColumns("0123456789", 10), "012345678");
  EXPECT_EQ(CutToColumns("0123456789", 11), "0123456789");
  EXPECT_EQ(CutToColumns("0123456789", 1), "");
  EXPECT_EQ(CutToColumns("", 10), "");
  EXPECT_EQ(CutToColumns("0123456789", 0), "0123456789");
}

TEST(Columns, ACharacterIsOneColumn) {
  EXPECT_EQ(CutToColumns("\xc3\xa4\xc3\xb6\xc3\xbc", 3), "\xc3\xa4\xc3\xb6");
  EXPECT_EQ(CutToColumns("\xe9xy", 3), "\xe9x");
}

TEST(Columns, ADumbTerminalCannotErase) {
  EXPECT_TRUE(CanErase("xterm-256color"));
  EXPECT_FALSE(CanErase("dumb"));
  EXPECT_FALSE(CanErase(""));
}

}  // namespace
}  // namespace muster::cli
