#include "worker/optim/optimizers.h"

#include <string>
#include <variant>
#include <vector>

#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "gtest/gtest.h"

namespace muster::optim {
namespace {

std::vector<std::string> StateOf(const OptimizerOptions& options) {
  std::vector<std::string> names;
  for (const NamedTensor& tensor : (*CreateOptimizer({{"p", at::zeros({3})}}, options))->State()) {
    names.push_back(tensor.slot);
  }
  return names;
}

TEST(CreateOptimizer, MakesTheOneThatTheOptionsAreOf) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(StateOf(AdamWOptions{}), (Names{"exp_avg", "exp_avg_sq", "step"}));
  EXPECT_EQ(StateOf(SgdOptions{.momentum = 0.9}), Names{"momentum_buffer"});
  EXPECT_EQ(StateOf(SgdOptions{}), Names{});
  EXPECT_EQ(StateOf(LionOptions{}), Names{"exp_avg"});
  EXPECT_EQ(StateOf(AdamOptions{}), (Names{"exp_avg", "exp_avg_sq", "step"}));
  EXPECT_EQ(StateOf(AdadeltaOptions{}), (Names{"square_avg", "acc_delta", "step"}));
  EXPECT_EQ(std::variant_size_v<OptimizerOptions>, 5u) << "one that is not listed here";
}

TEST(CreateOptimizer, HandsOverParametersAndOptions) {
  for (const OptimizerOptions& options : {OptimizerOptions(AdamWOptions{.weight_decay = 0.5}),
                                          OptimizerOptions(SgdOptions{.weight_decay = 0.5}),
                                          OptimizerOptions(LionOptions{.weight_decay = 0.5})}) {
    const at::Tensor parameter = at::full({3}, 2.0f);
    const auto optimizer = CreateOptimizer({{"p", parameter}}, options);
    ASSERT_TRUE(optimizer.ok()) << optimizer.status();
    parameter.mutable_grad() = at::zeros({3});
    ASSERT_TRUE((*optimizer)->Step(0.1).ok());
    // The weight decay alone acts, in all three. Adam's is a part of the gradient (adamw_test).
    EXPECT_FLOAT_EQ(parameter[0].item<float>(), 2.0f * (1 - 0.1f * 0.5f)) << options.index();
  }
}

TEST(CreateOptimizer, NamesAParameterThatDoesNotFit) {
  for (const OptimizerOptions& options :
       {OptimizerOptions(AdamWOptions{}), OptimizerOptions(SgdOptions{}),
        OptimizerOptions(LionOptions{}), OptimizerOptions(AdamOptions{}),
        OptimizerOptions(AdadeltaOptions{})}) {
    const auto refused = CreateOptimizer({{"p", at::zeros({3}, at::kLong)}}, options).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(refused.message()).find("parameter 'p'"), std::string::npos) << refused;
  }
}

}  // namespace
}  // namespace muster::optim
