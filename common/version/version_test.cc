#include "common/version/version.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(Version, SameMinorVersionIgnoresTheLastPart) {
  EXPECT_TRUE(SameMinorVersion("0.3.0", "0.3.12"));
  EXPECT_FALSE(SameMinorVersion("0.3.0", "0.2.0"));
  EXPECT_FALSE(SameMinorVersion("0.3.0", "1.3.0"));
  EXPECT_FALSE(SameMinorVersion("0.3.0", "0.30.0"));
  EXPECT_TRUE(SameMinorVersion(Version(), Version()));
}

}  // namespace
}  // namespace muster
