#include "worker/checkpoint/saver.h"

#include "gtest/gtest.h"

namespace muster::checkpoint {
namespace {

TEST(NodeTest, TheKernelGivesOneIdAsLongAsItRuns) {
  EXPECT_FALSE(NodeId().empty());
  EXPECT_EQ(NodeId(), NodeId());
}

}  // namespace
}  // namespace muster::checkpoint
