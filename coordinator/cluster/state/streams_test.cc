#include "coordinator/cluster/state/streams.h"

#include <gtest/gtest.h>

namespace muster::cluster {
namespace {

TEST(Streams, AStreamIsThatOfAnAgentOrOfAWorker) {
  Streams streams;
  streams.AddAgent(1, "n");
  streams.AddWorker(2, {.job = "j", .rank = 3});
  ASSERT_NE(streams.NodeOf(1), nullptr);
  EXPECT_EQ(*streams.NodeOf(1), "n");
  EXPECT_EQ(streams.WorkerOf(1), nullptr);
  ASSERT_NE(streams.WorkerOf(2), nullptr);
  EXPECT_EQ(streams.WorkerOf(2)->rank, 3u);
  EXPECT_EQ(streams.NodeOf(2), nullptr);
  streams.Remove(1);
  streams.Remove(9);
  EXPECT_EQ(streams.NodeOf(1), nullptr);
}

TEST(Streams, AForeignProcessIsFirstOnceInAStream) {
  Streams streams;
  streams.AddAgent(1, "n");
  EXPECT_TRUE(streams.FirstForeignProcess(1));
  EXPECT_FALSE(streams.FirstForeignProcess(1));
  streams.Remove(1);
  streams.AddAgent(1, "n");
  EXPECT_TRUE(streams.FirstForeignProcess(1));
}

}  // namespace
}  // namespace muster::cluster
