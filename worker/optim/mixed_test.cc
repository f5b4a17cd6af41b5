#include "worker/optim/optimizers.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "gtest/gtest.h"

namespace muster::optim {
namespace {

constexpr int64_t kElements = 37;
constexpr double kRate = 0.05;

std::vector<OptimizerOptions> Options() {
  return {SgdOptions{.momentum = 0.9, .weight_decay = 0.1},
          AdamWOptions{.beta1 = 0.8, .weight_decay = 0.2},
          SgdOptions{},
          LionOptions{.weight_decay = 0.3},
          AdamWOptions{},
          AdadeltaOptions{.weight_decay = 0.1},
          AdamWOptions{.beta1 = 0.8},
          AdamOptions{.weight_decay = 0.1}};
}

at::Tensor Numbers(double first) { return at::arange(kElements).add(first).mul(0.01).sin(); }

struct Parameters {
  std::vector<at::Tensor> tensors;
  std::vector<ParameterWithOptions> with_options;

  Parameters() {
    const auto options = Options();
    for (size_t i = 0; i < options.size(); ++i) {
      tensors.push_back(Numbers(static_cast<double>(i)));
      with_options.push_back({{.name = "p" + std::to_string(i),
                               .tensor = tensors.back(),
                               .lr_scale = i % 2 == 0 ? 1 : 0.5,
                               .bucket = i % 3},
                              options[i]});
    }
  }

  void SetGradients(int step) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].mutable_grad() = Numbers(static_cast<double>(100 * step + i));
    }
  }
};

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

// Each parameter is compared with the same parameter alone in its own optimizer.
TEST(Mixed, UpdatesEachParameterToTheBitsOfItsOwnOptimizer) {
  for (const bool by_bucket : {false, true}) {
    Parameters together, alone;
    const auto mixed = CreateMixed(together.with_options);
    ASSERT_TRUE(mixed.ok()) << mixed.status();
    std::vector<std::unique_ptr<Optimizer>> own;
    for (const auto& [parameter, options] : alone.with_options) {
      own.push_back(*CreateOptimizer({parameter}, options));
    }
    for (int step = 0; step < 3; ++step) {
      together.SetGradients(step);
      alone.SetGradients(step);
      if (by_bucket) {
        for (const size_t bucket : {1, 2, 0}) {
          ASSERT_TRUE((*mixed)->StepBucket(bucket, kRate).ok());
        }
      } else {
        ASSERT_TRUE((*mixed)->Step(kRate).ok());
      }
      for (const auto& optimizer : own) ASSERT_TRUE(optimizer->Step(kRate).ok());
    }
    std::vector<NamedTensor> expected;
    for (const auto& optimizer : own) {
      for (NamedTensor& tensor : optimizer->State()) expected.push_back(std::move(tensor));
    }
    const std::vector<NamedTensor> state = (*mixed)->State();
    ASSERT_EQ(state.size(), expected.size());
    for (size_t i = 0; i < state.size(); ++i) {
      EXPECT_EQ(state[i].parameter, expected[i].parameter) << "in the order of the parameters";
      EXPECT_EQ(state[i].slot, expected[i].slot);
      EXPECT_TRUE(SameBits(state[i].tensor, expected[i].tensor)) << state[i].parameter;
    }
    for (size_t i = 0; i < together.tensors.size(); ++i) {
      EXPECT_TRUE(SameBits(together.tensors[i], alone.tensors[i])) << i;
      EXPECT_FALSE(SameBits(together.tensors[i], Numbers(static_cast<double>(i)))) << i;
    }
  }
}

TEST(Mixed, WithoutAGradientNoParameterChanges) {
  Parameters parameters;
  const auto mixed = *CreateMixed(parameters.with_options);
  parameters.SetGradients(0);
  parameters.tensors.back().mutable_grad() = at::Tensor();
  const absl::Status refused = mixed->Step(kRate);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(mixed->CheckGradients(std::nullopt), refused);
  EXPECT_NE(std::string(refused.message()).find("'p7'"), std::string::npos) << refused;
  for (size_t i = 0; i < parameters.tensors.size(); ++i) {
    EXPECT_TRUE(SameBits(parameters.tensors[i], Numbers(static_cast<double>(i)))) << i;
  }
  EXPECT_TRUE(mixed->CheckGradients(0).ok()) << "the parameter is in bucket 1";
}

TEST(Mixed, ASkippedStepChangesNothing) {
  Parameters parameters;
  const auto mixed = *CreateMixed(parameters.with_options);
  parameters.SetGradients(0);
  ASSERT_TRUE(mixed->Step(kRate, at::full({}, 1.0f)).ok());
  for (size_t i = 0; i < parameters.tensors.size(); ++i) {
    EXPECT_TRUE(SameBits(parameters.tensors[i], Numbers(static_cast<double>(i)))) << i;
  }
  for (const NamedTensor& tensor : mixed->State()) {
    EXPECT_EQ(tensor.tensor.abs().sum().item<double>(), 0) << tensor.slot;
  }
}

TEST(Mixed, MayHaveNoParameters) {
  const auto mixed = CreateMixed({});
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  EXPECT_TRUE((*mixed)->Step(kRate).ok());
  EXPECT_TRUE((*mixed)->State().empty());
}

TEST(Mixed, NamesAParameterThatDoesNotFit) {
  const auto refused =
      CreateMixed({{{.name = "p", .tensor = at::arange(3)}, SgdOptions{}}}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(refused.message()).find("'p'"), std::string::npos) << refused;
}

}  // namespace
}  // namespace muster::optim
