// The behaviour of every strategy with parameters and gradients.
#include "worker/parallel/strategy_conformance.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/item.h"
#include "ATen/ops/zeros.h"
#include "absl/types/span.h"
#include "c10/core/GradMode.h"
#include "gtest/gtest.h"
#include "worker/device/host_values.h"
#include "worker/models/seed.h"
#include "worker/parallel/move_pieces.h"
#include "worker/parallel/strategy.h"
#include "worker/parallel/test_model.h"
#include "worker/parallel/test_net.h"

namespace muster::parallel {
namespace {

// The tests of all files that use this fixture.
INSTANTIATE_TEST_SUITE_P(All, StrategyConformance, EveryStrategy(), StrategyName);

constexpr double kLearningRate = 0.01;

// Returns a piece of a flattened tensor.
at::Tensor Part(const at::Tensor& whole, const Piece& piece) {
  return whole.detach().reshape({-1}).narrow(0, piece.begin, piece.tensor.numel());
}

// Returns whether the two tensors differ only by a few roundings in sums over micro-batches and
// ranks. A rounding is at most 2^-24 of a partial sum, and partial sums are not much larger than
// the largest element of `scale`.
bool Near(const at::Tensor& found, const at::Tensor& reference, const at::Tensor& scale) {
  if (found.numel() == 0) return true;
  const double bound = 1e-6 * scale.abs().max().item().toDouble();
  return (found - reference).abs().max().item().toDouble() <= bound;
}

std::unique_ptr<models::ForwardContext> TrainingContext(Strategy& strategy) {
  return strategy.MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
}

std::vector<size_t> AllOf(const TestNet& net) {
  std::vector<size_t> all;
  for (size_t i = 0; i < net.Parameters().size(); ++i) all.push_back(i);
  return all;
}

std::vector<bool> TrainedIn(const TestNet& net) {
  std::vector<bool> trained;
  for (const auto& [name, tensor] : net.Parameters()) trained.push_back(tensor.requires_grad());
  return trained;
}

// Returns the values of all parameters, in the order of MakeParameters().
std::vector<at::Tensor> ValuesOf(Strategy& strategy, const TestNet& net) {
  EXPECT_TRUE(strategy.AwaitParameters().ok());
  const absl::Status gathered = strategy.store().Gather(AllOf(net));
  EXPECT_TRUE(gathered.ok()) << gathered;
  std::vector<at::Tensor> values;
  for (const auto& [name, tensor] : net.InOrder()) values.push_back(tensor.detach().clone());
  strategy.store().Release();
  return values;
}

void Backward(Strategy& strategy, TestNet& net, models::ForwardContext& context, int rank,
              int64_t step, int micro_batches, double divisor) {
  strategy.BeginStep({step, divisor});
  for (int m = 0; m < micro_batches; ++m) {
    strategy.BeginMicroBatch(m + 1 == micro_batches);
    net.LossOf(context, rank, step, m).backward();
  }
}

void TrainStep(Strategy& strategy, TestNet& net, models::ForwardContext& context, int rank,
               int64_t step, int micro_batches, double divisor) {
  Backward(strategy, net, context, rank, step, micro_batches, divisor);
  const absl::Status status = strategy.FinishBackward();
  ASSERT_TRUE(status.ok()) << status;
}

void UpdatePiece(const Piece& piece) {
  const c10::NoGradGuard no_grad;
  at::Tensor(piece.tensor).sub_(piece.tensor.grad(), kLearningRate);
}

void Update(Strategy& strategy) {
  for (const Piece& piece : strategy.pieces()) UpdatePiece(piece);
  strategy.FinishUpdate();
}

void UpdateReference(const std::vector<models::Parameter>& parameters,
                     const std::vector<at::Tensor>& gradients) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (gradients[i].defined()) parameters[i].tensor.detach().sub_(gradients[i], kLearningRate);
  }
}

TEST_P(StrategyConformance, GradientsOfThePiecesAreTheReferenceOnesAndSoAreUpdatedParameters) {
  for (const int64_t bucket_bytes : {kOneBucketPerType, kUnevenBuckets, kOneBucketEach}) {
    for (const int micro_batches : {1, 3}) {
      // The order of additions is that of ddp, unless each micro-batch is reduced separately.
      const bool bitwise = implementation().local_sums || micro_batches == 1;
      RunRanks(world_size(), [&](comm::Communicator& ranks) {
        TestNet net;
        auto expected = MakeParameters();
        const auto strategy = Create(net, &ranks, bucket_bytes);
        const auto context = TrainingContext(*strategy);
        const auto names = net.Parameters();
        for (int64_t step = 0; step < 3; ++step) {
          const double divisor = world_size() * micro_batches;
          const auto gradients =
              ReferenceGradients(expected, world_size(), step, micro_batches, divisor);
          TrainStep(*strategy, net, *context, ranks.rank(), step, micro_batches, divisor);
          for (const Piece& piece : strategy->pieces()) {
            const at::Tensor& whole = gradients[TestNet::OrderOf(names[piece.parameter].name)];
            const at::Tensor found = piece.tensor.grad().reshape({-1});
            const at::Tensor reference = Part(whole, piece);
            EXPECT_TRUE(bitwise ? SameBits(found, reference) : Near(found, reference, whole))
                << names[piece.parameter].name << " in step " << step;
          }
          Update(*strategy);
          UpdateReference(expected, gradients);
          const auto values = ValuesOf(*strategy, net);
          for (size_t i = 0; i < expected.size(); ++i) {
            const at::Tensor reference = expected[i].tensor.detach();
            EXPECT_TRUE(bitwise ? SameBits(values[i], reference)
                                : Near(values[i], reference, reference))
                << expected[i].name << " in step " << step;
            if (!bitwise) reference.copy_(values[i]);  // so that differences do not add up
          }
        }
        const absl::Status equal = strategy->VerifyParametersEqual(3);
        EXPECT_TRUE(equal.ok()) << equal;
      });
    }
  }
}

// Reduces the gradients of a step and updates each bucket when the callback names it.
void UpdateBucketByBucket(Strategy& strategy) {
  std::vector<size_t> told;
  size_t updated = 0;
  const absl::Status finished = strategy.FinishBackward([&](size_t bucket) {
    told.push_back(bucket);
    for (const Piece& piece : strategy.pieces()) {
      if (piece.bucket != bucket) continue;
      UpdatePiece(piece);
      ++updated;
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(finished.ok()) << finished;
  strategy.FinishUpdate();
  ASSERT_EQ(told.size(), strategy.plan().buckets);
  for (size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i], i);
  EXPECT_EQ(updated, strategy.pieces().size());
}

TEST_P(StrategyConformance, BucketsAreToldOfOnceInOrderAndMayBeUpdatedOneByOne) {
  for (const int64_t bucket_bytes : {kOneBucketPerType, kUnevenBuckets, kOneBucketEach}) {
    for (const int micro_batches : {1, 3}) {
      RunRanks(world_size(), [&](comm::Communicator& ranks) {
        const auto train = [&](bool one_by_one) {
          TestNet net;
          const auto strategy = Create(net, &ranks, bucket_bytes);
          const auto context = TrainingContext(*strategy);
          for (int64_t step = 0; step < 3; ++step) {
            Backward(*strategy, net, *context, ranks.rank(), step, micro_batches,
                     world_size() * micro_batches);
            if (one_by_one) {
              UpdateBucketByBucket(*strategy);
            } else {
              EXPECT_TRUE(strategy->FinishBackward().ok());
              Update(*strategy);
            }
          }
          return ValuesOf(*strategy, net);
        };
        const auto values = train(true), expected = train(false);
        for (size_t i = 0; i < values.size(); ++i) EXPECT_TRUE(SameBits(values[i], expected[i]));
      });
    }
  }
}

TEST_P(StrategyConformance, AnErrorOfTheUpdateOfABucketIsTheStepsAndEndsTheUpdates) {
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    TestNet net;
    const auto strategy = Create(net, &ranks, kOneBucketEach);
    const auto context = TrainingContext(*strategy);
    Backward(*strategy, net, *context, ranks.rank(), 0, 1, world_size());
    int calls = 0;
    const absl::Status finished = strategy->FinishBackward([&](size_t bucket) {
      ++calls;
      return bucket == 1 ? absl::DataLossError("no update") : absl::OkStatus();
    });
    EXPECT_EQ(finished, absl::DataLossError("no update"));
    EXPECT_EQ(calls, 2);
  });
}

TEST_P(StrategyConformance, PiecesCoverEachTrainableElementOnceOrOnEveryRank) {
  for (const int64_t bucket_bytes : {kOneBucketPerType, kUnevenBuckets, kOneBucketEach}) {
    RunRanks(world_size(), [&](comm::Communicator& ranks) {
      TestNet net;
      const auto strategy = Create(net, &ranks, bucket_bytes);
      const auto expected = MakeParameters();
      const auto parameters = net.Parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        const auto& [name, tensor] = expected[TestNet::OrderOf(parameters[i].name)];
        const at::Tensor owned = at::zeros({tensor.numel() + 1});
        for (const Piece& piece : strategy->pieces()) {
          if (piece.parameter != i) continue;
          EXPECT_EQ(piece.begin % 16, 0);
          owned.narrow(0, piece.begin, piece.tensor.numel()).add_(1);
          owned[tensor.numel()].add_(piece.begin == 0);  // counts the first pieces
          EXPECT_TRUE(SameBits(piece.tensor.detach().reshape({-1}), Part(tensor, piece)));
        }
        ASSERT_TRUE(ranks.AllReduceSum(owned, {"owners", 0})->Wait().ok());
        const int holders = strategy->plan().sharded ? 1 : world_size();
        const float owners = tensor.requires_grad() ? holders : 0;
        EXPECT_EQ(owned.min().item<float>(), owners) << name;
        EXPECT_EQ(owned.max().item<float>(), owners) << name;
      }
    });
  }
}

// Freezes and unfreezes parameters in one plan after another.
TEST_P(StrategyConformance, APlanAfterAnotherTrainsOnWithTheSameValues) {
  const std::vector<std::vector<std::string>> frozen_in_turn = {
      {}, {"first", "bias"}, {"shared"}, {"shared", "last", "wide"}, {"bias", "last"}, {}};
  for (const int64_t bucket_bytes : {kOneBucketPerType, kUnevenBuckets, kOneBucketEach}) {
    RunRanks(world_size(), [&](comm::Communicator& ranks) {
      TestNet net;
      const auto expected = MakeParameters();
      std::unique_ptr<Strategy> strategy;
      int64_t step = 0;
      for (const auto& frozen : frozen_in_turn) {
        Arrangement before;
        KeptMemory kept;
        if (strategy != nullptr) {
          ASSERT_TRUE(strategy->AwaitParameters().ok());
          if (const auto* shards = strategy->store().shards()) before.holders = shards->holders;
          kept = strategy->ReleaseModel();
          before.held = kept.held;
          strategy.reset();
        }
        for (const auto& list : {net.InOrder(), expected}) {
          for (size_t i = 0; i < 8; ++i) {
            at::Tensor(list[i].tensor)
                .requires_grad_(std::find(frozen.begin(), frozen.end(), list[i].name) ==
                                frozen.end());
          }
        }
        strategy = Create(net, &ranks, bucket_bytes, std::move(kept));
        if (const auto* shards = strategy->store().shards();
            shards != nullptr && !before.held.empty()) {
          const auto moved = MovePieces(before, {shards->holders, shards->held},
                                        ElementBytes(shards->types), &ranks, {"refresh", step});
          ASSERT_TRUE(moved.ok()) << moved.status();
        }
        before = {};
        const auto context = TrainingContext(*strategy);
        for (int repeat = 0; repeat < 2; ++repeat, ++step) {
          const auto gradients = ReferenceGradients(expected, world_size(), step, 1, world_size());
          TrainStep(*strategy, net, *context, ranks.rank(), step, 1, world_size());
          Update(*strategy);
          UpdateReference(expected, gradients);
          const auto values = ValuesOf(*strategy, net);
          for (size_t i = 0; i < expected.size(); ++i) {
            EXPECT_TRUE(SameBits(values[i], expected[i].tensor.detach()))
                << expected[i].name << " in step " << step;
          }
        }
      }
    });
  }
}

TEST_P(StrategyConformance, APlanOfTheSameParametersLeavesThemWhereTheyAre) {
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    TestNet net;
    const auto addresses = [](const Strategy& strategy) {
      std::vector<const void*> addresses;
      for (const Piece& piece : strategy.pieces()) {
        if (piece.tensor.numel() > 0) addresses.push_back(piece.tensor.const_data_ptr());
      }
      return addresses;
    };
    auto strategy = Create(net, &ranks);
    const auto before = addresses(*strategy);
    KeptMemory kept = strategy->ReleaseModel();
    strategy.reset();
    strategy = Create(net, &ranks, kUnevenBuckets, std::move(kept));
    EXPECT_EQ(addresses(*strategy), before);
  });
}

TEST_P(StrategyConformance, PlacementsOfOtherFlagsAreThoseOfAPlanThatHasThem) {
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    TestNet net, other;
    for (const auto& [name, tensor] : other.Parameters()) {
      at::Tensor(tensor).requires_grad_(name != "shared" && name != "bias" && name != "table");
    }
    const auto strategy = Create(net, &ranks);
    const Placements foreseen = strategy->PlacementsFor(TrainedIn(other));
    const Placements now = strategy->PlacementsFor(TrainedIn(net));
    EXPECT_EQ(now.owners.holders, strategy->plan().owners.holders);
    const auto planned = Create(other, &ranks);
    EXPECT_EQ(foreseen.owners.holders, planned->plan().owners.holders);
    EXPECT_NE(foreseen.owners.holders, now.owners.holders);
    ASSERT_EQ(foreseen.holders.has_value(), planned->store().shards() != nullptr);
    if (foreseen.holders.has_value()) {
      EXPECT_EQ(foreseen.holders->holders, planned->store().shards()->holders.holders);
    }
  });
}

TEST_P(StrategyConformance, SumsOverAllPiecesComeFromTheirOwners) {
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    const TestNet net;
    const auto strategy = Create(net, &ranks);
    strategy->BeginStep({5, 1.0});
    const std::vector<double> mine = {ranks.rank() + 0.5, 7.0};
    const auto sums = strategy->GatherSums(device::HostTensor(mine));
    ASSERT_TRUE(sums.ok()) << sums.status();
    std::vector<double> expected;
    for (int rank = 0; rank < world_size(); ++rank) {
      if (!strategy->plan().sharded && rank != ranks.rank()) continue;
      expected.insert(expected.end(), {rank + 0.5, 7.0});
    }
    EXPECT_EQ(device::HostValues<double>(*sums), absl::MakeConstSpan(expected));
  });
}

// Expects that only the pieces of "unused" are unused, and only if `unused` is true.
void ExpectUnused(const Strategy& strategy, const std::vector<models::Parameter>& parameters,
                  bool unused) {
  ASSERT_EQ(strategy.unused().size(), strategy.pieces().size());
  for (size_t i = 0; i < strategy.pieces().size(); ++i) {
    const std::string& name = parameters[strategy.pieces()[i].parameter].name;
    const at::Tensor& flag = strategy.unused()[i];
    EXPECT_EQ(flag.defined(), unused && name == "unused") << name;
    if (!flag.defined()) continue;
    EXPECT_EQ(flag.item<float>(), 1);
  }
}

// A parameter that only some steps use, for example of an expert.
TEST_P(StrategyConformance, AParameterIsUnusedInStepsInWhichNoRankUsesItInAnyMicroBatch) {
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    TestNet net;
    const auto names = net.Parameters();
    const auto strategy = Create(net, &ranks);
    const auto context = TrainingContext(*strategy);
    const bool last = ranks.rank() == world_size() - 1;
    // By step and micro-batch: whether this rank uses the parameter, and the number of all uses.
    const struct {
      bool first, second;
      int uses;
    } steps[] = {{true, true, 2 * world_size()}, {false, false, 0}, {false, last, 1},
                 {false, false, 0},              {last, false, 1},  {true, false, world_size()}};
    for (int64_t step = 0; step < std::size(steps); ++step) {
      SCOPED_TRACE(testing::Message() << "rank " << ranks.rank() << ", step " << step);
      strategy->BeginStep({step, 1.0});
      for (const int m : {0, 1}) {
        net.Use(m == 0 ? steps[step].first : steps[step].second);
        strategy->BeginMicroBatch(m == 1);
        net.LossOf(*context, ranks.rank(), step, m).backward();
      }
      std::vector<bool> told(strategy->pieces().size());
      const absl::Status finished = strategy->FinishBackward([&](size_t bucket) {
        for (size_t i = 0; i < told.size(); ++i) {
          if (strategy->pieces()[i].bucket == bucket) told[i] = strategy->unused()[i].defined();
        }
        return absl::OkStatus();
      });
      ASSERT_TRUE(finished.ok()) << finished;
      ExpectUnused(*strategy, names, steps[step].uses == 0);
      for (size_t i = 0; i < told.size(); ++i) {
        EXPECT_EQ(told[i], strategy->unused()[i].defined()) << "when its bucket was reduced";
        const Piece& piece = strategy->pieces()[i];
        if (names[piece.parameter].name != "unused") continue;
        EXPECT_EQ(piece.tensor.grad().abs().max().item<float>(), steps[step].uses);
      }
      Update(*strategy);
    }
  });
}

TEST_P(StrategyConformance, WhatARankWithoutInputRunsIsNoUse) {
  if (world_size() == 1) GTEST_SKIP() << "at least one rank needs input";
  const int joined = world_size() - 1;
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    TestNet net;
    const auto names = net.Parameters();
    const auto strategy = Create(net, &ranks);
    const auto context = TrainingContext(*strategy);
    for (const bool used : {false, true}) {
      net.Use(ranks.rank() == joined || (used && ranks.rank() == 0));
      strategy->BeginStep({used, 1.0, joined - 1});
      if (ranks.rank() < joined) {
        strategy->BeginMicroBatch(true);
        net.LossOf(*context, ranks.rank(), 0, 0).backward();
      } else {
        strategy->BeginJoinedMicroBatch(true);
        if (context->collective()) net.LossOf(*context, 77, 0, 0).backward();
      }
      ASSERT_TRUE(strategy->FinishBackward().ok());
      ExpectUnused(*strategy, names, !used);
      strategy->FinishUpdate();
    }
  });
}

TEST_P(StrategyConformance, ARankWithoutInputAddsNothingAndGoesOnWithTheSameParameters) {
  if (world_size() == 1) GTEST_SKIP() << "at least one rank needs input";
  const int joined = world_size() - 1;
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    TestNet net;
    const auto names = net.Parameters();
    const auto expected = MakeParameters();
    const auto strategy = Create(net, &ranks);
    const auto context = TrainingContext(*strategy);
    const auto gradients = ReferenceGradients(expected, joined, 0, 1, joined);
    strategy->BeginStep({0, static_cast<double>(joined), joined - 1});
    if (ranks.rank() < joined) {
      strategy->BeginMicroBatch(true);
      net.LossOf(*context, ranks.rank(), 0, 0).backward();
    } else {
      strategy->BeginJoinedMicroBatch(true);
      if (context->collective()) net.LossOf(*context, 77, 0, 0).backward();
    }
    ASSERT_TRUE(strategy->FinishBackward().ok());
    Update(*strategy);
    UpdateReference(expected, gradients);
    const auto values = ValuesOf(*strategy, net);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(SameBits(values[i], expected[i].tensor.detach())) << expected[i].name;
    }
  });
}

class EmptyNet : public models::Unit {
 public:
  EmptyNet() : Unit("") {}
  at::Tensor Forward(const at::Tensor& x, models::ForwardContext&) override { return x; }
};

TEST_P(StrategyConformance, WithoutParametersAStepIsEmpty) {
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    const EmptyNet net;
    const auto strategy = Create(net, &ranks);
    strategy->BeginStep({0, 1.0});
    EXPECT_TRUE(strategy->FinishBackward().ok());
    strategy->FinishUpdate();
    EXPECT_TRUE(strategy->AwaitParameters().ok());
  });
}

TEST_P(StrategyConformance, MayBeDestroyedWithinAStep) {
  RunRanks(world_size(), [&](comm::Communicator& ranks) {
    TestNet net;
    auto strategy = Create(net, &ranks, kOneBucketEach);
    auto context = TrainingContext(*strategy);
    strategy->BeginStep({0, 1.0});
    strategy->BeginMicroBatch(true);
    net.LossOf(*context, ranks.rank(), 0, 0).backward();
    context.reset();
    strategy.reset();  // with reductions and buffers in flight
    for (const auto& [name, tensor] : net.Parameters()) {
      EXPECT_FALSE(tensor.grad().defined()) << name;
    }
  });
}

}  // namespace
}  // namespace muster::parallel
