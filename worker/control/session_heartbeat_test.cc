#include "worker/control/session_heartbeat.h"

#include <gtest/gtest.h>

#include <chrono>

namespace muster::control {
namespace {

using std::chrono::steady_clock;

TEST(SessionHeartbeat, TellsWhatMovedAndWhichCollectivesBeganAndEnded) {
  SessionHeartbeat heartbeat;
  {
    const activity::Scope scope(heartbeat.activity());
    for (int i = 0; i < 3; ++i) activity::Moved();
  }
  const uint64_t first = heartbeat.flight()->Begin(0, "all_reduce", {"bucket 2", 7});
  heartbeat.flight()->Begin(1, "broadcast", {"no \xff UTF-8", 7});
  heartbeat.flight()->End(first);
  v1::WorkerHeartbeat message;
  heartbeat.AddTo(&message);
  EXPECT_EQ(message.activity(), 3u);
  EXPECT_EQ(message.collectives_begun(), 2u);
  EXPECT_EQ(message.collectives_ended(), 1u);
  ASSERT_EQ(message.collectives_size(), 2);
  EXPECT_EQ(message.collectives(0).sequence(), first);
  EXPECT_EQ(message.collectives(0).name(), "all_reduce 'bucket 2' step 7");
  EXPECT_TRUE(message.collectives(0).ended());
  EXPECT_EQ(message.collectives(1).communicator(), 1u);
  EXPECT_EQ(message.collectives(1).communicator_sequence(), 1u);
  EXPECT_FALSE(message.collectives(1).ended());
  // A text that is not UTF-8 would make the whole message invalid.
  EXPECT_FALSE(message.SerializeAsString().empty());
  EXPECT_EQ(message.collectives(1).name().find('\xff'), std::string::npos);
}

TEST(SessionHeartbeat, TellsHowMuchOfAFileIsWritten) {
  SessionHeartbeat heartbeat;
  v1::WorkerHeartbeat message;
  heartbeat.AddTo(&message);
  EXPECT_FALSE(message.has_writing());
  heartbeat.writing()->Begin(4, 100);
  heartbeat.writing()->Add(30);
  heartbeat.AddTo(&message);
  EXPECT_EQ(message.writing().command(), 4u);
  EXPECT_EQ(message.writing().total_bytes(), 100u);
  EXPECT_EQ(message.writing().written_bytes(), 30u);
}

TEST(SessionHeartbeat, IsWatchedForTheLeaseAfterAHeartbeat) {
  steady_clock::time_point now = steady_clock::now();
  SessionHeartbeat heartbeat([&now] { return now; });
  v1::WorkerHeartbeat message;
  heartbeat.AddTo(&message);
  EXPECT_FALSE(heartbeat.Watched()) << "no lease was named";
  heartbeat.WatchedFor(absl::Seconds(10));
  EXPECT_TRUE(heartbeat.Watched());
  now += std::chrono::seconds(9);
  EXPECT_TRUE(heartbeat.Watched());
  now += std::chrono::seconds(1);
  EXPECT_FALSE(heartbeat.Watched());
  heartbeat.AddTo(&message);
  EXPECT_TRUE(heartbeat.Watched());
}

}  // namespace
}  // namespace muster::control
