// What every strategy has to do, whatever it shares out.
#include "worker/parallel/strategy_conformance.h"

#include <memory>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/item.h"
#include "ATen/ops/zeros.h"
#include "c10/core/GradMode.h"
#include "gtest/gtest.h"
#include "worker/parallel/strategy.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {
namespace {

INSTANTIATE_TEST_SUITE_P(All, StrategyConformance, EveryStrategy(), StrategyName);

// A piece of a flattened tensor.
at::Tensor Part(const at::Tensor& whole, const Piece& piece) {
  return whole.detach().reshape({-1}).narrow(0, piece.begin, piece.tensor.numel());
}

constexpr double kLearningRate = 0.01;

// Apart by a few roundings of sums over micro-batches and ranks, each at most 2^-24 of a partial
// sum, and those are not far above the largest element of `scale`.
bool Near(const at::Tensor& found, const at::Tensor& reference, const at::Tensor& scale) {
  if (found.numel() == 0) return true;
  const double bound = 1e-6 * scale.abs().max().item().toDouble();
  return (found - reference).abs().max().item().toDouble() <= bound;
}

TEST_P(StrategyConformance, GradientsOfThePiecesAreTheReferenceOnesAndSoAreUpdatedParameters) {
  for (const int64_t bucket_bytes : {kOneBucketPerType, kUnevenBuckets, kOneBucketEach}) {
    for (const int micro_batches : {1, 3}) {
      // The order of additions is ddp's unless each micro-batch is reduced for itself.
      const bool bitwise = implementation().local_sums || micro_batches == 1;
      RunRanks(world_size(), [&](comm::Communicator& ranks) {
        auto parameters = MakeParameters();
        auto expected = MakeParameters();
        const auto strategy = Create(parameters, {}, &ranks, bucket_bytes);
        for (int64_t step = 0; step < 3; ++step) {
          const double divisor = world_size() * micro_batches;
          const auto gradients =
              ReferenceGradients(expected, world_size(), step, micro_batches, divisor);
          strategy->BeginStep({step, divisor});
          for (int m = 0; m < micro_batches; ++m) {
            strategy->BeginMicroBatch(m + 1 == micro_batches);
            Loss(parameters, ranks.rank(), step, m).backward();
          }
          const absl::Status status = strategy->FinishBackward();
          ASSERT_TRUE(status.ok()) << status;
          c10::NoGradGuard no_grad;
          for (const Piece& piece : strategy->pieces()) {
            const at::Tensor found = piece.tensor.grad().reshape({-1});
            const at::Tensor reference = Part(gradients[piece.parameter], piece);
            EXPECT_TRUE(bitwise ? SameBits(found, reference)
                                : Near(found, reference, gradients[piece.parameter]))
                << parameters[piece.parameter].name << " in step " << step;
            at::Tensor tensor = piece.tensor;
            tensor.sub_(piece.tensor.grad(), kLearningRate);
          }
          strategy->FinishUpdate();
          ASSERT_TRUE(strategy->AwaitParameters().ok());
          for (size_t i = 0; i < expected.size(); ++i) {
            if (!gradients[i].defined()) continue;
            at::Tensor tensor = expected[i].tensor.detach();
            tensor.sub_(gradients[i], kLearningRate);
          }
          for (size_t i = 0; i < expected.size(); ++i) {
            EXPECT_TRUE(bitwise ? SameBits(parameters[i].tensor, expected[i].tensor)
                                : Near(parameters[i].tensor.detach(), expected[i].tensor.detach(),
                                       expected[i].tensor.detach()))
                << parameters[i].name << " in step " << step;
          }
          if (!bitwise) {  // so that differences do not add up
            for (size_t i = 0; i < expected.size(); ++i) {
              expected[i].tensor.detach().copy_(parameters[i].tensor.detach());
            }
          }
        }
        const absl::Status equal = strategy->VerifyParametersEqual(3);
        EXPECT_TRUE(equal.ok()) << equal;
      });
    }
  }
}

TEST_P(StrategyConformance, PiecesCoverEachTrainableElementOnceOrOnEveryRank) {
  for (const int64_t bucket_bytes : {kOneBucketPerType, kUnevenBuckets, kOneBucketEach}) {
    RunRanks(world_size(), [&](comm::Communicator& ranks) {
      const auto parameters = MakeParameters();
      const auto strategy = Create(parameters, {}, &ranks, bucket_bytes);
      for (size_t i = 0; i < parameters.size(); ++i) {
        const at::Tensor owned = at::zeros({parameters[i].tensor.numel() + 1});
        for (const Piece& piece : strategy->pieces()) {
          if (piece.parameter != i) continue;
          EXPECT_EQ(piece.begin % 16, 0);
          owned.narrow(0, piece.begin, piece.tensor.numel()).add_(1);
          owned[parameters[i].tensor.numel()].add_(piece.begin == 0);  // one begins it
          EXPECT_TRUE(SameBits(piece.tensor.reshape({-1}), Part(parameters[i].tensor, piece)));
        }
        ASSERT_TRUE(ranks.AllReduceSum(owned, {"owners", 0})->Wait().ok());
        const bool trainable = parameters[i].tensor.requires_grad();
        const float owners = !trainable ? 0 : strategy->sharded() ? 1 : world_size();
        EXPECT_EQ(owned.min().item<float>(), owners) << parameters[i].name;
        EXPECT_EQ(owned.max().item<float>(), owners) << parameters[i].name;
      }
    });
  }
}

TEST_P(StrategyConformance, SumsOverAllPiecesComeFromTheirOwners) {
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    const auto strategy = Create(MakeParameters(), {}, &ranks);
    strategy->BeginStep({5, 1.0});
    const auto sums = strategy->GatherSums({ranks.rank() + 0.5, 7.0});
    ASSERT_TRUE(sums.ok()) << sums.status();
    if (!strategy->sharded()) {
      EXPECT_EQ(*sums, (std::vector<PartialSum>{{ranks.rank() + 0.5, 7.0}}));
      return;
    }
    ASSERT_EQ(sums->size(), world_size());
    for (int rank = 0; rank < world_size(); ++rank) {
      EXPECT_EQ((*sums)[rank], (PartialSum{rank + 0.5, 7.0}));
    }
  });
}

TEST_P(StrategyConformance, BuffersAreThoseOfTheHighestRankAfterItsLastForward) {
  const int highest = world_size() - 1;
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    auto parameters = MakeParameters();
    const auto buffers = MakeBuffers();
    const auto strategy = Create(parameters, buffers, &ranks);
    const auto expected = MakeBuffers();
    for (int64_t step = 0; step < 3; ++step) {
      strategy->BeginStep({step, 1.0});
      for (int m = 0; m < 2; ++m) {
        strategy->BeginMicroBatch(m == 1);
        const at::Tensor loss = Loss(parameters, ranks.rank(), step, m);
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
    for (const auto& parameters : {MakeParameters(), std::vector<models::Parameter>()}) {
      const auto buffers = MakeBuffers();
      const auto strategy = Create(parameters, buffers, &ranks);
      strategy->BeginStep({0, 1.0});
      strategy->BeginMicroBatch(true);
      Count(buffers, ranks.rank());
      ASSERT_TRUE(strategy->FinishBackward().ok());
      EXPECT_EQ(buffers[0].tensor[2].item<float>(), world_size());
    }
  });
}

TEST_P(StrategyConformance, BuffersAreWhatTheyWereBeforeAStepThatIsLeftOut) {
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    auto parameters = MakeParameters();
    const auto buffers = MakeBuffers();
    const auto strategy = Create(parameters, buffers, &ranks);
    buffers[1].tensor.fill_(7);  // as loading a checkpoint does
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

// An expert, say: used in some steps only.
TEST_P(StrategyConformance, AParameterThatIsUsedNoLongerHasAZeroGradientAgain) {
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    auto parameters = MakeParameters();
    const auto strategy = Create(parameters, {}, &ranks);
    const at::Tensor& sometimes = parameters[3].tensor;
    for (int64_t step = 0; step < 4; ++step) {
      strategy->BeginStep({step, 1.0});
      strategy->BeginMicroBatch(true);
      at::Tensor loss = Loss(parameters, ranks.rank(), step, 0);
      if (step % 2 == 0) loss = loss + sometimes.sum();
      loss.backward();
      ASSERT_TRUE(strategy->FinishBackward().ok());
      for (const Piece& piece : strategy->pieces()) {
        if (piece.parameter != 3) continue;
        EXPECT_EQ(piece.tensor.grad().abs().max().item<float>(), step % 2 == 0 ? world_size() : 0);
      }
    }
  });
}

TEST_P(StrategyConformance, WithoutParametersAStepIsEmpty) {
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    const auto strategy = Create({}, {}, &ranks);
    strategy->BeginStep({0, 1.0});
    EXPECT_TRUE(strategy->FinishBackward().ok());
    strategy->FinishUpdate();
    EXPECT_TRUE(strategy->AwaitParameters().ok());
  });
}

}  // namespace
}  // namespace muster::parallel
