#include "common/printable/printable.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(WhoAsked, WhatIsProvenComesFirstAndALabelCannotLookLikeIt) {
  EXPECT_EQ(WhoAsked("uid 1000", "me@host"), "uid 1000 (label 'me@host')");
  EXPECT_EQ(WhoAsked("operator/alice", "x') (operator/bob"),
            R"(operator/alice (label 'x\') (operator/bob'))");
  EXPECT_EQ(WhoAsked("uid 1000", "\u00e9\n"), "uid 1000 (label '\u00e9\\n')");
}

TEST(WhoAsked, OneOfThemAloneIsShownAsItIs) {
  EXPECT_EQ(WhoAsked("uid 1000", ""), "uid 1000");
  EXPECT_EQ(WhoAsked("uid 1000", "uid 1000"), "uid 1000");
  EXPECT_EQ(WhoAsked("", "time_limit"), "time_limit");
  EXPECT_EQ(WhoAsked("", ""), "");
}

}  // namespace
}  // namespace muster
