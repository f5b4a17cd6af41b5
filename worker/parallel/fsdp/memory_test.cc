// The memory of full parameters over a step, by the allocator's counters. One rank of four, without
// peers.
#include <cstdint>
#include <memory>
#include <string>

#include "c10/core/GradMode.h"
#include "gtest/gtest.h"
#include "worker/memory/counting_allocator.h"
#include "worker/models/seed.h"
#include "worker/parallel/fsdp/fsdp.h"
#include "worker/parallel/fsdp/layers.h"
#include "worker/parallel/holding_communicator.h"

namespace muster::parallel {
namespace {

using memory::Purpose;

// The bytes of a layer. A layer has 90 elements in two parameters, each of which begins at a
// multiple of 16. The four slices are multiples of 16, too, which gives 128 elements.
constexpr uint64_t kLayer = 128 * 4;
constexpr uint64_t kRoot = 64 * 4;

class FsdpMemory : public testing::Test {
 protected:
  static void SetUpTestSuite() { memory::InstallCountingAllocator(); }

  void Create(int depth, const FsdpOptions& options = {}) {
    context_.reset();
    strategy_.reset();
    net_ = std::make_unique<Layers>(depth);
    for (int i = 1; i < depth; i += 2) {
      for (const auto& [name, tensor] : net_->children()[i]->Parameters()) {
        at::Tensor(tensor).requires_grad_(false);
      }
    }
    auto strategy = CreateFsdp(net_->Parameters(), {}, net_.get(), &communicator_, options);
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    strategy_ = *std::move(strategy);
    context_ = strategy_->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
  }

  // Runs a step. Returns the peaks of the gathered bytes in forward and in backward. Also sets
  // during_update_.
  void Step(uint64_t* forward, uint64_t* backward) {
    strategy_->BeginStep({0, 4.0});
    strategy_->BeginMicroBatch(true);
    memory::ResetPeaks();
    const at::Tensor loss = context_->Call(*net_, Numbers({5, Layers::kWidth}, 1)).square().mean();
    *forward = memory::MemoryInUse().of(Purpose::kGathered).peak_bytes;
    memory::ResetPeaks();
    loss.backward();
    ASSERT_TRUE(strategy_->FinishBackward().ok());
    *backward = memory::MemoryInUse().of(Purpose::kGathered).peak_bytes;
    during_update_ = Gathered();
    strategy_->FinishUpdate();
  }

  static uint64_t Gathered() { return memory::MemoryInUse().of(Purpose::kGathered).bytes; }

  HoldingCommunicator communicator_;
  std::unique_ptr<Layers> net_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<models::ForwardContext> context_;
  uint64_t during_update_ = 0;
};

TEST_F(FsdpMemory, AtMostTheRootAndTwoUnitsAreWholeAtATimeWhateverTheDepth) {
  for (const int depth : {6, 24}) {
    Create(depth);
    EXPECT_EQ(Gathered(), 0);
    for (int step = 0; step < 3; ++step) {
      uint64_t forward = 0;
      uint64_t backward = 0;
      Step(&forward, &backward);
      // The first forward gathers no unit ahead, because the order of the units is not known yet.
      EXPECT_EQ(forward, kRoot + (step == 0 ? 1 : 2) * kLayer)
          << "depth " << depth << ", step " << step;
      EXPECT_EQ(backward, kRoot + 2 * kLayer) << "depth " << depth << ", step " << step;
      EXPECT_EQ(during_update_, 0);
      EXPECT_EQ(Gathered(), kRoot + kLayer);  // for the next forward
    }
  }
}

TEST_F(FsdpMemory, WithoutReshardingAllUnitsAreWholeUntilTheirBackward) {
  Create(6, {.reshard_after_forward = false});
  uint64_t forward = 0;
  uint64_t backward = 0;
  Step(&forward, &backward);
  EXPECT_EQ(forward, kRoot + 6 * kLayer);
  EXPECT_EQ(backward, kRoot + 6 * kLayer);
  EXPECT_EQ(during_update_, 0);
  EXPECT_EQ(Gathered(), kRoot + kLayer);
}

// The root stays gathered, because a loss may read its parameters. The next step uses the root.
TEST_F(FsdpMemory, AnEvaluationLeavesNothingWholeButTheRoot) {
  Create(6);
  const c10::NoGradGuard no_grad;
  context_->Call(*net_, Numbers({5, Layers::kWidth}, 1));
  EXPECT_EQ(Gathered(), kRoot);
}

// A hook that reads parameters between steps frees all units. A unit that was gathered ahead would
// be gathered in vain in every step.
TEST_F(FsdpMemory, NothingIsGatheredAheadForAModelWhoseParametersAreReadBetweenSteps) {
  Create(6);
  uint64_t forward = 0;
  uint64_t backward = 0;
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(strategy_->store().Gather({0}).ok());
    strategy_->store().Release();
    Step(&forward, &backward);
    EXPECT_EQ(Gathered(), 0);
  }
  Step(&forward, &backward);
  EXPECT_EQ(Gathered(), kRoot + kLayer);
}

TEST_F(FsdpMemory, ResidentFrozenUnitsStay) {
  Create(6, {.frozen_resident = true});
  for (int step = 0; step < 3; ++step) {
    uint64_t forward = 0;
    uint64_t backward = 0;
    Step(&forward, &backward);
    EXPECT_EQ(during_update_, 3 * kLayer);
    EXPECT_EQ(Gathered(), kRoot + 4 * kLayer);
  }
}

TEST_F(FsdpMemory, FrozenParametersAreNeverReduced) {
  Create(6);
  uint64_t forward = 0;
  uint64_t backward = 0;
  Step(&forward, &backward);
  EXPECT_EQ(communicator_.reduced_bytes, kRoot + 3 * kLayer);
}

TEST_F(FsdpMemory, ARankHoldsItsQuarterOfEachGroup) {
  const uint64_t before = memory::MemoryInUse().of(Purpose::kParameters).bytes;
  Create(6);
  EXPECT_EQ(memory::MemoryInUse().of(Purpose::kParameters).bytes - before,
            (kRoot + 6 * kLayer) / 4);
}

}  // namespace
}  // namespace muster::parallel
