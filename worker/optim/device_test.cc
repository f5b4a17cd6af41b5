// The optimizers, the norm and clipping on a device that is not the CPU.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "gtest/gtest.h"
#include "worker/device/stand_in/stand_in_device.h"
#include "worker/optim/clip.h"
#include "worker/optim/loss_scaler.h"
#include "worker/optim/optimizers.h"

namespace muster::optim {
namespace {

at::Tensor Numbers(int64_t elements, at::ScalarType type, double begin) {
  return at::arange(elements, type).mul_(0.7).add_(begin).sin_();
}

struct Trained {
  std::vector<at::Tensor> parameters;
  std::vector<NamedTensor> state;
};

Trained Train(const OptimizerOptions& options, c10::Device device) {
  std::vector<OptimizedParameter> parameters;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const int64_t elements : {1, 40, 0}) {
      const int64_t index = parameters.size();
      parameters.push_back(
          {"p" + std::to_string(index), Numbers(elements, type, 1 + index).to(device)});
      parameters.back().bucket = index % 2;
    }
  }
  auto optimizer = CreateOptimizer(parameters, options);
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  for (int step = 0; step < 4; ++step) {
    for (const OptimizedParameter& parameter : parameters) {
      at::Tensor(parameter.tensor).mutable_grad() =
          Numbers(parameter.tensor.numel(), parameter.tensor.scalar_type(), 5 * step).to(device);
    }
    for (const size_t bucket : {1, 0}) {
      EXPECT_TRUE((*optimizer)->StepBucket(bucket, 0.01).ok());
    }
  }
  Trained trained{.parameters = {}, .state = (*optimizer)->State()};
  for (const OptimizedParameter& parameter : parameters) {
    trained.parameters.push_back(parameter.tensor);
  }
  return trained;
}

void ExpectSame(const at::Tensor& there, const at::Tensor& here) {
  EXPECT_EQ(there.device(), device::StandInDevice());
  EXPECT_TRUE(there.cpu().equal(here)) << there.cpu() << "\n" << here;
}

TEST(OptimizersOnADevice, HaveTheBitsAndTheStateOfTheCpu) {
  for (const OptimizerOptions& options :
       {OptimizerOptions(AdamWOptions{.weight_decay = 0.1}),
        OptimizerOptions(SgdOptions{.momentum = 0.9, .nesterov = true}),
        OptimizerOptions(LionOptions{.weight_decay = 0.1}),
        OptimizerOptions(AdamOptions{.weight_decay = 0.1})}) {
    const Trained here = Train(options, at::kCPU), there = Train(options, device::StandInDevice());
    for (size_t i = 0; i < here.parameters.size(); ++i) {
      ExpectSame(there.parameters[i], here.parameters[i]);
    }
    ASSERT_EQ(there.state.size(), here.state.size());
    for (size_t i = 0; i < here.state.size(); ++i) {
      ExpectSame(there.state[i].tensor, here.state[i].tensor);
    }
  }
}

// The optimizer's own loop takes the square roots on the CPU, and LibTorch's operators take them on
// a device. Their last bits may differ. A change has two roots, so it differs by 2^-22 of itself at
// most, and its square by twice as much.
TEST(AdadeltaOnADevice, HasTheNumbersOfTheCpu) {
  const OptimizerOptions options = AdadeltaOptions{.weight_decay = 0.1};
  const Trained here = Train(options, at::kCPU), there = Train(options, device::StandInDevice());
  for (size_t i = 0; i < here.parameters.size(); ++i) {
    EXPECT_TRUE(there.parameters[i].cpu().allclose(here.parameters[i], 1e-6, 1e-7)) << i;
  }
  ASSERT_EQ(there.state.size(), here.state.size());
  for (size_t i = 0; i < here.state.size(); ++i) {
    EXPECT_EQ(there.state[i].tensor.device(), device::StandInDevice());
    EXPECT_TRUE(there.state[i].tensor.cpu().allclose(here.state[i].tensor, 2e-6, 0))
        << here.state[i].slot << " of " << here.state[i].parameter;
  }
}

// Squares are added in float64, in another order than on the CPU. 40 additions of relative error
// 2^-53 each change the float32 of the norm by its last bit at most.
TEST(ClippingOnADevice, HasTheNormOfTheCpu) {
  std::vector<at::Tensor> here, there;
  for (int i = 0; i < 3; ++i) {
    here.push_back(Numbers(40 * i, i == 1 ? at::kDouble : at::kFloat, i));
    there.push_back(here.back().to(device::StandInDevice()));
  }
  const float norm = NormOf({SumOfSquares(here)});
  const at::Tensor norm_there = SumOfSquaresOn(device::StandInDevice(), there).sqrt();
  EXPECT_NEAR(norm_there.item<float>(), norm, norm * 1.2e-7);
  for (const double max_norm : {norm / 3.0, norm * 2.0}) {
    ClipGradients(here, norm, max_norm);
    ScaleGradientsBy(ClipFactor(norm_there, max_norm), there);
    for (size_t i = 0; i < here.size(); ++i) {
      EXPECT_TRUE(there[i].cpu().allclose(here[i], 2e-7, 0)) << max_norm;
    }
  }
  there[1].fill_(NAN);
  EXPECT_TRUE(std::isnan(SumOfSquaresOn(device::StandInDevice(), there).item<double>()));
  EXPECT_EQ(SumOfSquaresOn(device::StandInDevice(), {}).item<double>(), 0);
}

TEST(OptimizersOnADevice, ChangeNothingInAStepThatIsSkipped) {
  for (const c10::Device device : {c10::Device(at::kCPU), device::StandInDevice()}) {
    for (const OptimizerOptions& options : {OptimizerOptions(AdamWOptions{.weight_decay = 0.1}),
                                            OptimizerOptions(SgdOptions{.momentum = 0.9}),
                                            OptimizerOptions(LionOptions{.weight_decay = 0.1}),
                                            OptimizerOptions(AdadeltaOptions{})}) {
      // `plain` makes only the steps that `skipping` does not skip.
      std::vector<at::Tensor> parameters;
      std::vector<std::unique_ptr<Optimizer>> optimizers;
      for (int i = 0; i < 2; ++i) {
        parameters.push_back(Numbers(40, at::kFloat, 1).to(device));
        optimizers.push_back(*CreateOptimizer({{"p", parameters[i]}}, options));
      }
      for (int step = 0; step < 5; ++step) {
        const bool skips = step % 2 == 1;
        const at::Tensor gradient = Numbers(40, at::kFloat, 5 * step).to(device);
        parameters[0].mutable_grad() = skips ? gradient * NAN : gradient;
        parameters[1].mutable_grad() = gradient;
        const at::Tensor skip = at::full({}, skips ? 1.0 : 0.0, at::kFloat).to(device);
        EXPECT_TRUE(optimizers[0]->Step(0.01, skip).ok());
        if (!skips) {
          EXPECT_TRUE(optimizers[1]->Step(0.01).ok());
        }
      }
      EXPECT_TRUE(parameters[0].cpu().equal(parameters[1].cpu())) << device;
      const auto skipping = optimizers[0]->State(), plain = optimizers[1]->State();
      for (size_t i = 0; i < plain.size(); ++i) {
        EXPECT_TRUE(skipping[i].tensor.cpu().equal(plain[i].tensor.cpu())) << plain[i].slot;
      }
    }
  }
}

TEST(LossScalerOnADevice, HasTheScalesOfTheCpu) {
  const LossScaleOptions options = {.initial = 0x1p126, .growth_interval = 2};
  LossScaler here(options), there(options, device::StandInDevice());
  for (const bool finite : {true, true, true, true, false, true, false, true, true, false}) {
    here.Update(finite);
    there.UpdateOnDevice(at::full({}, finite, at::kBool).to(device::StandInDevice()));
    EXPECT_EQ(there.scale_on_device().item<float>(), here.scale());
    EXPECT_EQ(there.State()[1].tensor.item<float>(), here.State()[1].tensor.item<float>());
  }
  EXPECT_NE(here.scale(), 0x1p126f);
}

}  // namespace
}  // namespace muster::optim
