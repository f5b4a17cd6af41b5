#include "common/rpc/proto_time.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace muster {
namespace {

TEST(ProtoTime, DurationsComeBackToTheNanosecond) {
  for (const absl::Duration duration :
       {absl::ZeroDuration(), absl::Nanoseconds(1), absl::Milliseconds(2500), absl::Hours(8760),
        -absl::Milliseconds(1500)}) {
    EXPECT_EQ(FromProto(ToProto(duration)), duration);
  }
  EXPECT_EQ(ToProto(absl::Milliseconds(2500)).seconds(), 2);
  EXPECT_EQ(ToProto(absl::Milliseconds(2500)).nanos(), 500'000'000);
}

TEST(ProtoTime, ADurationWithoutEndHasAllSecondsAndNoNanoseconds) {
  const google::protobuf::Duration duration = ToProto(absl::InfiniteDuration());
  EXPECT_EQ(duration.seconds(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(duration.nanos(), 0);
}

TEST(ProtoTime, TimesComeBackToTheMicrosecond) {
  const absl::Time time = absl::FromUnixMicros(1'700'000'000'123'456);
  EXPECT_EQ(FromProto(ToProto(time)), time);
  EXPECT_EQ(FromProto(ToProto(time + absl::Nanoseconds(400))), time);
}

}  // namespace
}  // namespace muster
