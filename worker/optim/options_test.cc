#include "worker/optim/options.h"

#include "gtest/gtest.h"

namespace muster::optim {
namespace {

TEST(SlotsOf, AreTheNamesOfTorchOptim) {
  using Slots = std::vector<StateSlot>;
  const Slots adam = {{"exp_avg", false}, {"exp_avg_sq", false}, {"step", true}};
  EXPECT_EQ(SlotsOf(AdamWOptions{}), adam);
  EXPECT_EQ(SlotsOf(AdamOptions{}), adam);
  EXPECT_EQ(SlotsOf(LionOptions{}), (Slots{{"exp_avg", false}}));
  EXPECT_EQ(SlotsOf(AdadeltaOptions{}),
            (Slots{{"square_avg", false}, {"acc_delta", false}, {"step", true}}));
}

TEST(SlotsOf, SgdHasABufferOnlyWithMomentum) {
  EXPECT_EQ(SlotsOf(SgdOptions{.momentum = 0.9}), (std::vector<StateSlot>{{"momentum_buffer"}}));
  EXPECT_TRUE(SlotsOf(SgdOptions{}).empty());
}

TEST(WeightDecay, CanBeReadAndSetInAnyKind) {
  for (OptimizerOptions options : {OptimizerOptions(AdamWOptions{}), OptimizerOptions(SgdOptions{}),
                                   OptimizerOptions(LionOptions{}), OptimizerOptions(AdamOptions{}),
                                   OptimizerOptions(AdadeltaOptions{})}) {
    SetWeightDecay(0.5, &options);
    EXPECT_EQ(WeightDecayOf(options), 0.5) << KindOf(options);
  }
}

}  // namespace
}  // namespace muster::optim
