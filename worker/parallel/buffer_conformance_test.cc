// The behaviour of every strategy with buffers.
#include <string>

#include "ATen/TensorOperators.h"
#include "ATen/ops/item.h"
#include "gtest/gtest.h"
#include "worker/models/seed.h"
#include "worker/parallel/strategy.h"
#include "worker/parallel/strategy_conformance.h"
#include "worker/parallel/test_model.h"
#include "worker/parallel/test_net.h"

namespace muster::parallel {
namespace {

TEST_P(StrategyConformance, BuffersAreThoseOfTheHighestRankAfterItsLastForward) {
  const int highest = world_size() - 1;
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    TestNet net;
    const auto buffers = net.Buffers();
    const auto strategy = Create(net, &ranks);
    const auto context = strategy->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
    const auto expected = MakeBuffers();
    for (int64_t step = 0; step < 3; ++step) {
      strategy->BeginStep({step, 1.0});
      for (int m = 0; m < 2; ++m) {
        strategy->BeginMicroBatch(m == 1);
        const at::Tensor loss = net.LossOf(*context, ranks.rank(), step, m);
        Count(buffers, ranks.rank());
        loss.backward();
        Count(expected, highest);
      }
      const absl::Status status = strategy->FinishBackward();
      ASSERT_TRUE(status.ok()) << status;
      for (size_t i = 0; i < buffers.size(); ++i) {
        EXPECT_TRUE(SameBits(buffers[i].tensor, expected[i].tensor))
            << buffers[i].name << " in step " << step;
      }
    }
    const absl::Status equal = strategy->VerifyParametersEqual(3);
    EXPECT_TRUE(equal.ok()) << equal;
  });
}

TEST_P(StrategyConformance, BuffersAreSynchronizedAlsoWhereBackwardReachesNoParameter) {
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    const TestNet net;
    const auto strategy = Create(net, &ranks);
    strategy->BeginStep({0, 1.0});
    strategy->BeginMicroBatch(true);
    Count(net.Buffers(), ranks.rank());
    ASSERT_TRUE(strategy->FinishBackward().ok());
    EXPECT_EQ(net.Buffers()[0].tensor[2].item<float>(), world_size());
  });
}

TEST_P(StrategyConformance, BuffersAreWhatTheyWereBeforeAStepThatIsLeftOut) {
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    const TestNet net;
    const auto buffers = net.Buffers();
    const auto strategy = Create(net, &ranks);
    buffers[1].tensor.fill_(7);  // as when a checkpoint is loaded
    for (int64_t step = 0; step < 2; ++step) {
      strategy->BeginStep({step, 1.0});
      strategy->BeginMicroBatch(true);
      Count(buffers, ranks.rank());
      ASSERT_TRUE(strategy->FinishBackward().ok());
      EXPECT_NE(buffers[1].tensor.item<int64_t>(), 7);
      strategy->RestoreBuffers();
      EXPECT_EQ(buffers[0].tensor.abs().sum().item<float>(), 0);
      EXPECT_EQ(buffers[1].tensor.item<int64_t>(), 7);
    }
  });
}

TEST_P(StrategyConformance, ABufferThatDiffersBetweenRanksIsNamed) {
  if (world_size() < 3) GTEST_SKIP() << "needs rank 1 of several";
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    const TestNet net;
    const auto strategy = Create(net, &ranks);
    if (ranks.rank() == 1) net.Buffers()[1].tensor.add_(1);
    EXPECT_EQ(std::string(strategy->VerifyParametersEqual(3).message()),
              "step 3: buffer 'count' differs from rank 0's on rank 1");
  });
}

}  // namespace
}  // namespace muster::parallel
