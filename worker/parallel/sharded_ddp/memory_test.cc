// The memory of a rank with sharded_ddp over a step, by purpose (docs/internals/collectives.md has
// a drawing). One rank of four, without peers: a reduction is in flight until the rank waits for
// it.
#include <memory>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/ones.h"
#include "gtest/gtest.h"
#include "worker/memory/counting_allocator.h"
#include "worker/parallel/holding_communicator.h"
#include "worker/parallel/sharded_ddp/sharded_ddp.h"

namespace muster::parallel {
namespace {

using memory::Purpose;

constexpr int kParameters = 20;
constexpr uint64_t kBucket =
    4 * 1024;  // 1000 elements, padded to a multiple of 16 for each of four ranks
constexpr uint64_t kAll = kParameters * kBucket;

class ShardedDdpMemory : public testing::Test {
 protected:
  static void SetUpTestSuite() { memory::InstallCountingAllocator(); }

  void Create(ShardedDdpOptions options = {}) {
    for (int i = 0; i < kParameters; ++i) {
      parameters_.push_back({"p" + std::to_string(i), at::ones({1000}).requires_grad_(true)});
    }
    options.bucket_bytes = options.first_bucket_bytes = 1;  // a bucket for each parameter
    auto strategy = CreateShardedDdp(parameters_, {}, nullptr, &communicator_, options);
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    strategy_ = *std::move(strategy);
  }

  // Uses the parameters in their order, so that backward gives the gradients in the order of the
  // buckets.
  void ForwardBackward() {
    at::Tensor loss;
    for (const auto& [name, tensor] : parameters_) {
      const at::Tensor one = tensor.square().sum();
      loss = loss.defined() ? loss + one : one;
    }
    loss.backward();
  }

  static memory::Use Used(Purpose purpose) { return memory::MemoryInUse().of(purpose); }
  static uint64_t Buckets() { return Used(Purpose::kBuckets).bytes; }
  static uint64_t MostBuckets() { return Used(Purpose::kBuckets).peak_bytes; }

  HoldingCommunicator communicator_;
  std::vector<models::Parameter> parameters_;
  std::unique_ptr<Strategy> strategy_;
};

TEST_F(ShardedDdpMemory, ParametersAreThereOnceAndReducedGradientsInSlices) {
  Create();
  EXPECT_EQ(Used(Purpose::kParameters).bytes, kAll);
  EXPECT_EQ(Used(Purpose::kGradients).bytes, kAll / 4);
  EXPECT_EQ(Buckets(), 0u);
  // The former memory of the parameters is freed.
  EXPECT_LT(Used(Purpose::kOther).bytes, kBucket);
  strategy_.reset();
  EXPECT_EQ(Used(Purpose::kGradients).bytes, 0u);
  parameters_.clear();
  EXPECT_EQ(Used(Purpose::kParameters).bytes, 0u);
}

// While the third bucket is filled, two buckets are being reduced.
TEST_F(ShardedDdpMemory, OfFullGradientsThereAreThreeBucketsAtATimeAndNoneBetweenSteps) {
  Create();
  for (int64_t step = 0; step < 3; ++step) {
    memory::ResetPeaks();
    strategy_->BeginStep({step, 1.0});
    strategy_->BeginMicroBatch(true);
    ForwardBackward();
    EXPECT_EQ(MostBuckets(), 3 * kBucket);
    EXPECT_EQ(Buckets(), 2 * kBucket);
    ASSERT_TRUE(strategy_->FinishBackward().ok());
    EXPECT_EQ(Buckets(), 0u);
    strategy_->FinishUpdate();
    ASSERT_TRUE(strategy_->AwaitParameters().ok());
    EXPECT_EQ(Buckets(), 0u);
    EXPECT_EQ(MostBuckets(), 3 * kBucket);
  }
}

TEST_F(ShardedDdpMemory, ARankWithoutInputHasNoMoreThanThatEither) {
  Create();
  memory::ResetPeaks();
  strategy_->BeginStep({0, 1.0});
  strategy_->BeginJoinedMicroBatch(true);
  ASSERT_TRUE(strategy_->FinishBackward().ok());
  EXPECT_EQ(MostBuckets(), 3 * kBucket);
  EXPECT_EQ(Buckets(), 0u);
}

TEST_F(ShardedDdpMemory, LocalSumsAreBucketsOfEverythingUntilTheLastMicroBatch) {
  Create();
  memory::ResetPeaks();
  strategy_->BeginStep({0, 1.0});
  for (int m = 0; m < 2; ++m) {
    strategy_->BeginMicroBatch(false);
    ForwardBackward();
    EXPECT_EQ(Buckets(), kAll);
  }
  strategy_->BeginMicroBatch(true);
  ForwardBackward();
  EXPECT_EQ(Buckets(), 2 * kBucket);
  ASSERT_TRUE(strategy_->FinishBackward().ok());
  EXPECT_EQ(Buckets(), 0u);
  EXPECT_EQ(MostBuckets(), kAll);
}

// Besides the buckets, each reduction in flight has a slice, whose values are added afterwards.
TEST_F(ShardedDdpMemory, ReducingEveryMicroBatchNeverHasMoreThanAFewBuckets) {
  Create({.reduce_every = ShardedDdpOptions::ReduceEvery::kMicroBatch});
  memory::ResetPeaks();
  strategy_->BeginStep({0, 1.0});
  for (int m = 0; m < 3; ++m) {
    strategy_->BeginMicroBatch(m == 2);
    ForwardBackward();
  }
  ASSERT_TRUE(strategy_->FinishBackward().ok());
  EXPECT_EQ(Buckets(), 0u);
  EXPECT_LE(MostBuckets(), 3 * kBucket + 2 * kBucket / 4);
}

// The memory at the peak: the bucket that is filled, its copy, and one copy in flight. Before a
// third copy is made, the oldest copy is freed.
TEST_F(ShardedDdpMemory, GradientsThatTravelAsBfloat16AreHeldAsThat) {
  Create({.reduce_in_bfloat16 = true});
  memory::ResetPeaks();
  strategy_->BeginStep({0, 1.0});
  strategy_->BeginMicroBatch(true);
  ForwardBackward();
  EXPECT_EQ(Buckets(), 2 * kBucket / 2);
  ASSERT_TRUE(strategy_->FinishBackward().ok());
  EXPECT_EQ(Buckets(), 0u);
  EXPECT_EQ(MostBuckets(), kBucket + 2 * kBucket / 2);
}

TEST_F(ShardedDdpMemory, AStepThatIsGivenUpLeavesNothingBehindTheNext) {
  Create();
  strategy_->BeginStep({0, 1.0});
  strategy_->BeginMicroBatch(false);
  ForwardBackward();
  strategy_->BeginStep({1, 1.0});
  strategy_->BeginMicroBatch(true);
  ForwardBackward();
  ASSERT_TRUE(strategy_->FinishBackward().ok());
  EXPECT_EQ(Buckets(), 0u);
}

}  // namespace
}  // namespace muster::parallel
