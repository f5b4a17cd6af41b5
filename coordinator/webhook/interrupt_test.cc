#include "coordinator/webhook/interrupt.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "common/process/fd.h"
#include "common/steady/now.h"

namespace muster::webhook {
namespace {

class InterruptTest : public testing::Test {
 protected:
  InterruptTest() {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    mine_ = process::Fd(pair[0]);
    other_ = process::Fd(pair[1]);
  }
  absl::Status Await(absl::Time until = absl::InfiniteFuture()) {
    return interrupt_.Await(mine_.get(), POLLIN, until);
  }
  process::Fd mine_, other_;
  Interrupt interrupt_;
};

TEST_F(InterruptTest, ASocketThatIsReadyEndsTheWait) {
  EXPECT_EQ(write(other_.get(), "x", 1), 1);
  EXPECT_TRUE(Await().ok());
}

TEST_F(InterruptTest, ASocketThatHasEndedEndsTheWait) {
  other_ = process::Fd();
  EXPECT_TRUE(Await().ok());
}

TEST_F(InterruptTest, TheTimeEndsTheWaitAlsoWhileTheSocketIsReady) {
  EXPECT_TRUE(absl::IsDeadlineExceeded(Await(SteadyNow() + absl::Milliseconds(1))));
  EXPECT_EQ(write(other_.get(), "x", 1), 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(Await(SteadyNow())));
}

TEST_F(InterruptTest, SetEndsAWaitAndAllLaterOnesAlsoWhileTheSocketIsReady) {
  std::thread wait([this] { EXPECT_TRUE(absl::IsCancelled(Await())); });
  interrupt_.Set();
  wait.join();
  EXPECT_TRUE(interrupt_.is_set());
  EXPECT_EQ(write(other_.get(), "x", 1), 1);
  EXPECT_TRUE(absl::IsCancelled(Await()));
}

TEST_F(InterruptTest, WithoutAFileDescriptorNothingIsWaitedFor) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Interrupt without;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(write(other_.get(), "x", 1), 1);
  EXPECT_TRUE(
      absl::IsResourceExhausted(without.Await(mine_.get(), POLLIN, absl::InfiniteFuture())));
}

}  // namespace
}  // namespace muster::webhook
