#include "worker/control/lease_keeper.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/notification.h"
#include "common/steady/test_bound.h"

namespace muster::control {
namespace {

const LeaseTerms kTerms = {
    .lease = absl::Seconds(10), .margin = absl::Milliseconds(250), .autonomy = absl::Hours(1)};

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

// A keeper with a clock that the test moves. The keeper sees the new time within its longest wait,
// or with the next change.
class LeaseKeeperTest : public ::testing::Test {
 protected:
  LeaseKeeperTest()
      : keeper_({.on_over =
                     [this](const absl::Status& why) {
                       why_ = why;
                       over_.Notify();
                     },
                 .on_silent = [this] { ++silent_; },
                 .clock = [this] { return absl::FromUnixNanos(now_); }}) {}

  void SetClock(absl::Time now) { now_ = absl::ToUnixNanos(now); }

  std::atomic<int64_t> now_ = 0;
  absl::Notification over_;
  absl::Status why_;
  std::atomic<int> silent_ = 0;
  LeaseKeeper keeper_;
};

TEST_F(LeaseKeeperTest, BeforeTheWelcomeNothingEnds) {
  SetClock(At(1000));
  keeper_.Refused(At(1000));
  EXPECT_TRUE(keeper_.StillMine().ok());
}

TEST_F(LeaseKeeperTest, EndsOnItsOwnThreadOnceTheLeaseIsOver) {
  keeper_.Welcomed(kTerms, At(0), false);
  EXPECT_TRUE(keeper_.StillMine().ok());
  SetClock(At(9.75));
  EXPECT_EQ(keeper_.StillMine().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(over_.WaitForNotificationWithTimeout(kTestBound));
  EXPECT_EQ(why_.code(), absl::StatusCode::kUnavailable);
}

TEST_F(LeaseKeeperTest, AnAnswerThatComesTooLateDoesNotRenewTheLease) {
  keeper_.Welcomed(kTerms, At(0), false);
  SetClock(At(9));
  const uint64_t beat = keeper_.Beat();
  SetClock(At(9.75));
  keeper_.Acked(beat);
  EXPECT_FALSE(keeper_.StillMine().ok());
  ASSERT_TRUE(over_.WaitForNotificationWithTimeout(kTestBound));
}

TEST_F(LeaseKeeperTest, AnswersAndRefusedConnectionsMakeItLonger) {
  keeper_.Welcomed(kTerms, At(0), false);
  SetClock(At(2));
  keeper_.Acked(keeper_.Beat());
  SetClock(At(11));
  EXPECT_TRUE(keeper_.StillMine().ok());
  keeper_.Broken();
  keeper_.Refused(At(11));
  SetClock(At(20));
  EXPECT_TRUE(keeper_.StillMine().ok());
}

TEST_F(LeaseKeeperTest, AHolderThatContinuesWhenCutOffNeverEnds) {
  keeper_.Welcomed(kTerms, At(0), true);
  keeper_.Broken();
  SetClock(At(100000));
  keeper_.Refused(At(1));
  EXPECT_TRUE(keeper_.StillMine().ok());
}

TEST_F(LeaseKeeperTest, SilenceIsToldOncePerStream) {
  keeper_.Welcomed(kTerms, At(0), false);
  SetClock(At(5));
  keeper_.Acked(0);  // A change, so the thread checks the lease.
  while (silent_ == 0) std::this_thread::yield();
  keeper_.Acked(0);
  keeper_.Broken();
  EXPECT_EQ(silent_, 1);
}

}  // namespace
}  // namespace muster::control
