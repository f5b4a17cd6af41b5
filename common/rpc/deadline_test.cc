#include "common/rpc/deadline.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(DeadlineAfter, IsOnAClockThatNobodySets) {
  const gpr_timespec wait = gpr_time_from_seconds(5, GPR_TIMESPAN);
  const gpr_timespec before = gpr_now(GPR_CLOCK_MONOTONIC);
  const gpr_timespec deadline = DeadlineAfter(absl::Seconds(5));
  const gpr_timespec after = gpr_now(GPR_CLOCK_MONOTONIC);
  ASSERT_EQ(deadline.clock_type, GPR_CLOCK_MONOTONIC);
  EXPECT_GE(gpr_time_cmp(deadline, gpr_time_add(before, wait)), 0);
  EXPECT_LE(gpr_time_cmp(deadline, gpr_time_add(after, wait)), 0);
}

TEST(DeadlineAfter, AnInfiniteTimeNeverEnds) {
  const gpr_timespec never = gpr_inf_future(GPR_CLOCK_MONOTONIC);
  EXPECT_EQ(gpr_time_cmp(DeadlineAfter(absl::InfiniteDuration()), never), 0);
  EXPECT_EQ(gpr_time_cmp(DeadlineAfter(absl::Hours(24) * 365 * 1000), never), 0);
}

TEST(DeadlineAfter, ATimeThatIsOverHasPassed) {
  EXPECT_LE(gpr_time_cmp(DeadlineAfter(-absl::Seconds(1)), gpr_now(GPR_CLOCK_MONOTONIC)), 0);
}

}  // namespace
}  // namespace muster
