#include "common/flags/flags.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

absl::StatusOr<absl::Duration> Parse(const std::string& text) {
  return ParseDurationFlag("--lease", text, absl::ZeroDuration(), absl::Hours(1));
}

TEST(DurationFlag, TakesWhatIsWithinTheRange) {
  EXPECT_EQ(*Parse("1m30s"), absl::Seconds(90));
  EXPECT_EQ(*Parse("0s"), absl::ZeroDuration());
  EXPECT_EQ(*Parse("1h"), absl::Hours(1));
}

TEST(DurationFlag, RefusesTheRestByName) {
  for (const std::string text : {"-1s", "61m", "inf", "90", "soon", ""}) {
    const absl::Status status = Parse(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(status.message(), "--lease " + text + ": expected a time from 0s to 1h");
  }
}

}  // namespace
}  // namespace muster
