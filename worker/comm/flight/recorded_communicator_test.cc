#include "worker/comm/flight/recorded_communicator.h"

#include <memory>

#include "ATen/core/Tensor.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "gtest/gtest.h"
#include "worker/comm/local/local_group.h"

namespace muster::comm {
namespace {

TEST(Recorded, AnOperationHasBegunBeforeItIsUnderWayAndEndsOnceWhenItIsWaitedFor) {
  auto ranks = LocalGroup::Create(2);
  FlightRecorder recorder;
  const auto recorded = Recorded(ranks[0].get(), &recorder, 0);
  const at::Tensor mine = at::full({4}, 3.0f);
  auto work = recorded->AllReduceSum(mine, {"gradients", 7}, 2.0);
  EXPECT_EQ(recorder.Read().begun, 1);
  EXPECT_EQ(recorder.Read().ended, 0);
  EXPECT_EQ(recorder.Read().newest[0].name, "all_reduce 'gradients' step 7");
  const at::Tensor theirs = at::full({4}, 1.0f);
  ASSERT_TRUE(ranks[1]->AllReduceSum(theirs, {"gradients", 7}, 2.0)->Wait().ok());
  ASSERT_TRUE(work->Wait().ok());
  ASSERT_TRUE(work->Wait().ok());
  EXPECT_EQ(recorder.Read().ended, 1);
  work.reset();
  EXPECT_EQ(recorder.Read().ended, 1);
  EXPECT_TRUE(mine.equal(at::full({4}, 2.0f)));
}

TEST(Recorded, AnOperationThatIsDestroyedOrFailsHasEndedToo) {
  auto ranks = LocalGroup::Create(1);
  FlightRecorder recorder;
  const auto recorded = Recorded(ranks[0].get(), &recorder, 1);
  const at::Tensor out = at::zeros({4});
  recorded->AllGather(out, at::full({4}, 1.0f), {"let go of", 1}).reset();
  EXPECT_EQ(recorder.Read().ended, 1);
  EXPECT_FALSE(recorded->Broadcast(out, 5, {"wrong root", 1})->Wait().ok());
  EXPECT_EQ(recorder.Read().begun, 2);
  EXPECT_EQ(recorder.Read().ended, 2);
}

}  // namespace
}  // namespace muster::comm
