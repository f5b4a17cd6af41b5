#include "worker/train/save/background.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>

#include "ATen/ops/full.h"
#include "absl/synchronization/notification.h"
#include "common/activity/activity.h"
#include "worker/train/ranks/rank_threads.h"

namespace muster::train {
namespace {

class NoEvents : public EventSink {
 public:
  void Report(const Event&) override {}
  void Progress(int64_t, const char*, const char*) override {}
};

class BackgroundTest : public testing::Test {
 protected:
  NoEvents events_;
  SessionState session_state_;
  const SessionReports reports_{0, &events_, &session_state_};
};

TEST_F(BackgroundTest, ATaskRunsOnAnotherThreadWithTheActivityOfThisOne) {
  RunRanks(1, [&](int, comm::Communicator&, comm::Communicator&, comm::Communicator&,
                  comm::Communicator& files) {
    activity::Activity activity;
    const activity::Scope scope(&activity);
    Background background(&files, &reports_);
    absl::Notification may_end;
    std::thread::id other;
    background.Start([&] {
      may_end.WaitForNotification();
      other = std::this_thread::get_id();
      activity::Moved();
      return absl::OkStatus();
    });
    EXPECT_TRUE(background.failure().ok());
    may_end.Notify();
    EXPECT_TRUE(background.Await().ok());
    EXPECT_NE(other, std::this_thread::get_id());
    EXPECT_EQ(activity.count(), 1u);
  });
}

TEST_F(BackgroundTest, WithoutRoomForTheCopiesOfAllRanksOfANodeNothingIsCopied) {
  RunRanks(2, [&](int, comm::Communicator&, comm::Communicator&, comm::Communicator&,
                  comm::Communicator& files) {
    const auto ranks = RanksOfNode(files);
    ASSERT_TRUE(ranks.ok());
    Background background(&files, &reports_, *ranks);
    const at::Tensor small = at::full({8}, 1.0f);
    EXPECT_TRUE(background.Copy(checkpoint::Replicated({{"param", "w", small}}, 2)).ok());
    // More memory than any machine has.
    checkpoint::StateBuilder builder(2);
    builder.AddSharded({"param", "w", {int64_t{1} << 48}},
                       {{0, 0, int64_t{1} << 47}, {1, int64_t{1} << 47, int64_t{1} << 48}});
    const auto none = background.Copy(builder.Build());
    EXPECT_TRUE(absl::IsResourceExhausted(none.status())) << none.status();
    EXPECT_NE(none.status().message().find("2 ranks of this node"), absl::string_view::npos);
  });
}

TEST_F(BackgroundTest, AnErrorStaysAndAnExceptionIsOne) {
  RunRanks(1, [&](int, comm::Communicator&, comm::Communicator&, comm::Communicator&,
                  comm::Communicator& files) {
    Background background(&files, &reports_);
    background.Start([]() -> absl::Status { throw std::runtime_error("no more"); });
    EXPECT_TRUE(absl::IsInternal(background.Await()));
    EXPECT_TRUE(absl::IsInternal(background.failure()));
    EXPECT_TRUE(absl::IsInternal(background.Await()));
  });
}

// The session of rank 0 ends with an error before it starts the task that rank 1 has started.
TEST_F(BackgroundTest, ATaskThatWaitsForRanksThatHaveEndedDoesNotHoldUpTheEndOfTheSession) {
  absl::Notification one_waits;
  RunRanks(2, [&](int rank, comm::Communicator&, comm::Communicator&, comm::Communicator&,
                  comm::Communicator& files) {
    if (rank == 0) {
      one_waits.WaitForNotification();
      return;
    }
    absl::Status end;
    {
      Background background(&files, &reports_);
      background.Start([&] {
        const at::Tensor sum = at::full({1}, 1.0f);
        const auto work = files.AllReduceSum(sum, {"sum", 1});
        one_waits.Notify();
        return end = work->Wait();
      });
      one_waits.WaitForNotification();
    }
    EXPECT_TRUE(absl::IsUnavailable(end)) << end;
  });
}

}  // namespace
}  // namespace muster::train
