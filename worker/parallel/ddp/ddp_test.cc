// Tests of ddp beyond the conformance tests of strategies.
#include "worker/parallel/ddp/ddp.h"

#include "gtest/gtest.h"
#include "worker/comm/local/local_group.h"
#include "worker/parallel/recording.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {
namespace {

constexpr DdpOptions kUnevenBuckets = {.bucket_bytes = 500, .first_bucket_bytes = 1};

TEST(Ddp, GradientsAreViewsOfOneBucketAtAlignedPlaces) {
  auto ranks = comm::LocalGroup::Create(1);
  auto parameters = MakeParameters();
  auto ddp = CreateDdp(parameters, {}, ranks[0].get(), {});
  ASSERT_TRUE(ddp.ok()) << ddp.status();
  EXPECT_EQ((*ddp)->plan().buckets, 2);  // float32, float64
  (*ddp)->BeginStep({0, 1.0});
  (*ddp)->BeginMicroBatch(true);
  Loss(parameters, 0, 0, 0).backward();
  ASSERT_TRUE((*ddp)->FinishBackward().ok());
  for (const auto& parameter : parameters) {
    if (parameter.tensor.scalar_type() != at::kFloat || !parameter.tensor.requires_grad()) continue;
    EXPECT_EQ(parameter.tensor.grad().storage_offset() % 16, 0) << parameter.name;
    EXPECT_TRUE(
        parameter.tensor.grad().storage().is_alias_of(parameters[0].tensor.grad().storage()));
  }
}

TEST(Ddp, NothingIsReducedBeforeTheLastMicroBatch) {
  auto ranks = comm::LocalGroup::Create(1);
  auto parameters = MakeParameters();
  auto ddp = CreateDdp(parameters, {}, ranks[0].get(), {});
  ASSERT_TRUE(ddp.ok()) << ddp.status();
  (*ddp)->BeginStep({0, 8.0});
  (*ddp)->BeginMicroBatch(false);
  Loss(parameters, 0, 0, 0).backward();
  auto plain = MakeParameters();
  Loss(plain, 0, 0, 0).backward();
  EXPECT_TRUE(SameBits(parameters[0].tensor.grad(), plain[0].tensor.grad()));  // not divided
}

TEST(Ddp, AStepSendsTheBuffersOnceAndThenTheBucketsInOrder) {
  for (const bool with_buffers : {true, false}) {
    auto ranks = comm::LocalGroup::Create(1);
    Recording recording(ranks[0].get());
    auto parameters = MakeParameters();
    auto ddp = CreateDdp(parameters, with_buffers ? MakeBuffers() : std::vector<models::Buffer>(),
                         &recording, kUnevenBuckets);
    ASSERT_TRUE(ddp.ok()) << ddp.status();
    (*ddp)->BeginStep({0, 1.0});
    for (int m = 0; m < 3; ++m) {
      (*ddp)->BeginMicroBatch(m == 2);
      Loss(parameters, 0, 0, m).backward();
    }
    ASSERT_TRUE((*ddp)->FinishBackward().ok());
    std::vector<std::string> expected;
    if (with_buffers) expected.push_back("broadcast buffers");
    for (int i = 0; i < (*ddp)->plan().buckets; ++i) {
      expected.push_back("all_reduce bucket " + std::to_string(i));
    }
    EXPECT_EQ(recording.operations, expected);
  }
}

}  // namespace
}  // namespace muster::parallel
