// Parameters that no rank used in a step stay unchanged, and the others are stepped.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "gtest/gtest.h"
#include "worker/device/stand_in/stand_in_device.h"
#include "worker/optim/factories.h"
#include "worker/optim/optimizers.h"

namespace muster::optim {
namespace {

constexpr int kParameters = 5;
constexpr int kSteps = 4;
constexpr double kRate = 0.01;

at::Tensor Numbers(double begin, c10::Device device) {
  return at::arange(40, at::kFloat).mul_(0.7).add_(begin).sin_().to(device);
}

// True if parameter i is not used in step s.
bool Unused(int i, int s) { return i > 0 && (i == 4 || s % 2 == i % 2); }

OptimizedParameter Parameter(int i, c10::Device device) {
  return {.name = "p" + std::to_string(i),
          .tensor = Numbers(i, device),
          .bucket = static_cast<size_t>(i % 2)};
}

void SetGradient(const at::Tensor& parameter, int i, int s) {
  at::Tensor(parameter).mutable_grad() =
      Unused(i, s) ? at::zeros_like(parameter) : Numbers(10 * s + i, parameter.device());
}

struct Result {
  std::vector<at::Tensor> parameters;
  std::vector<NamedTensor> state;
};

// Steps the parameters in one optimizer, which is told the unused parameters.
Result Together(const std::vector<OptimizerOptions>& options, c10::Device device, bool by_bucket,
                bool all_known) {
  Result result;
  std::vector<ParameterWithOptions> parameters;
  for (int i = 0; i < kParameters; ++i) {
    parameters.push_back({Parameter(i, device), options[i % options.size()]});
    result.parameters.push_back(parameters.back().parameter.tensor);
  }
  auto optimizer = CreateMixed(std::move(parameters));
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  for (int s = 0; s < kSteps; ++s) {
    std::vector<at::Tensor> unused(kParameters);
    for (int i = 0; i < kParameters; ++i) {
      SetGradient(result.parameters[i], i, s);
      if (!Unused(i, s) && all_known) continue;
      unused[i] = at::full({}, Unused(i, s) ? 1.0f : 0.0f).to(device);
    }
    if (by_bucket) {
      for (const size_t bucket : {1, 0}) {
        EXPECT_TRUE((*optimizer)->StepBucket(bucket, kRate, unused).ok());
      }
    } else {
      EXPECT_TRUE((*optimizer)->Step(kRate, /*skip=*/{}, unused).ok());
    }
  }
  result.state = (*optimizer)->State();
  return result;
}

// Steps each parameter in its own optimizer, which skips the steps that do not use the parameter.
Result Apart(const std::vector<OptimizerOptions>& options, c10::Device device) {
  Result result;
  for (int i = 0; i < kParameters; ++i) {
    const OptimizedParameter parameter = Parameter(i, device);
    result.parameters.push_back(parameter.tensor);
    auto optimizer = CreateOptimizer({parameter}, options[i % options.size()]);
    EXPECT_TRUE(optimizer.ok()) << optimizer.status();
    for (int s = 0; s < kSteps; ++s) {
      SetGradient(parameter.tensor, i, s);
      if (Unused(i, s)) continue;
      EXPECT_TRUE((*optimizer)->Step(kRate).ok());
    }
    for (NamedTensor& tensor : (*optimizer)->State()) result.state.push_back(std::move(tensor));
  }
  return result;
}

void ExpectSame(const Result& found, const Result& expected) {
  for (int i = 0; i < kParameters; ++i) {
    EXPECT_TRUE(found.parameters[i].cpu().equal(expected.parameters[i].cpu())) << "parameter " << i;
  }
  ASSERT_EQ(found.state.size(), expected.state.size());
  for (size_t i = 0; i < found.state.size(); ++i) {
    const NamedTensor &one = found.state[i], &other = expected.state[i];
    EXPECT_EQ(one.parameter + one.slot, other.parameter + other.slot);
    EXPECT_TRUE(one.tensor.cpu().equal(other.tensor.cpu())) << one.slot << " of " << one.parameter;
  }
}

TEST(UnusedParameters, AreLeftAsTheyAreByEveryOptimizer) {
  const std::vector<std::vector<OptimizerOptions>> all = {
      {AdamWOptions{.weight_decay = 0.1}},
      {AdamOptions{.weight_decay = 0.1}},
      {SgdOptions{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}},
      {SgdOptions{.weight_decay = 0.1}},
      {LionOptions{.weight_decay = 0.1}},
      {AdadeltaOptions{.weight_decay = 0.1}},
      {SgdOptions{.momentum = 0.9}, AdamWOptions{.weight_decay = 0.1}, AdamWOptions{}},
  };
  for (const c10::Device device : {c10::Device(at::kCPU), device::StandInDevice()}) {
    for (size_t kind = 0; kind < all.size(); ++kind) {
      const Result expected = Apart(all[kind], device);
      for (const bool by_bucket : {false, true}) {
        for (const bool all_known : {false, true}) {
          SCOPED_TRACE(testing::Message() << device << ", optimizer " << kind << ", by bucket "
                                          << by_bucket << ", all known " << all_known);
          ExpectSame(Together(all[kind], device, by_bucket, all_known), expected);
        }
      }
      EXPECT_TRUE(expected.parameters[4].cpu().equal(Numbers(4, at::kCPU))) << "never used";
    }
  }
}

TEST(UnusedParameters, NothingIsSteppedInAStepThatTheDeviceSkips) {
  const c10::Device device = device::StandInDevice();
  const at::Tensor tensor = Numbers(1, device);
  auto optimizer = CreateAdamW({{.name = "p", .tensor = tensor}}, {.weight_decay = 0.1});
  ASSERT_TRUE(optimizer.ok());
  SetGradient(tensor, 0, 0);
  const at::Tensor one = at::ones({}).to(device), zero = at::zeros({}).to(device);
  for (const auto& [skip, unused] :
       {std::pair(one, zero), std::pair(zero, one), std::pair(one, one)}) {
    EXPECT_TRUE((*optimizer)->Step(kRate, skip, std::vector<at::Tensor>{unused}).ok());
    EXPECT_TRUE(tensor.cpu().equal(Numbers(1, at::kCPU)));
    for (const NamedTensor& slot : (*optimizer)->State()) {
      EXPECT_EQ(slot.tensor.cpu().abs().max().item<float>(), 0) << slot.slot;
    }
  }
  EXPECT_TRUE((*optimizer)->Step(kRate, zero, std::vector<at::Tensor>{zero}).ok());
  EXPECT_FALSE(tensor.cpu().equal(Numbers(1, at::kCPU)));
}

}  // namespace
}  // namespace muster::optim
