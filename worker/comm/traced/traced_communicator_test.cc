#include "worker/comm/traced/traced_communicator.h"

#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "gtest/gtest.h"
#include "worker/comm/local/local_group.h"

namespace muster::comm {
namespace {

TEST(Traced, RecordsEachOperationOnceWithItsBytesAndPassesItOn) {
  auto ranks = LocalGroup::Create(1);
  trace::Recorder recorder;
  const auto traced = Traced(ranks[0].get(), &recorder);
  EXPECT_EQ(traced->world_size(), 1);
  const at::Tensor in = at::full({4}, 3.0f);
  const at::Tensor out = at::zeros({4});
  ASSERT_TRUE(traced->AllGather(out, in, {"off", 1})->Wait().ok());
  recorder.Start();
  const auto work = traced->ReduceScatterSum(out, in, {"gradients", 1}, 2.0);
  ASSERT_TRUE(work->Wait().ok());
  ASSERT_TRUE(work->Wait().ok());
  EXPECT_TRUE(out.equal(at::full({4}, 1.5f)));
  traced->AllGather(out, in, {"not waited for", 1}).reset();
  const auto events = recorder.Stop();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "reduce_scatter gradients");
  EXPECT_EQ(events[0].lane, trace::Lane::kCollectives);
  EXPECT_EQ(events[0].bytes, 16);
  EXPECT_EQ(events[1].name, "all_gather not waited for");
}

}  // namespace
}  // namespace muster::comm
