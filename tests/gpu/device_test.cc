// Tests of worker/device, worker/memory and worker/optim on a GPU. Each test is skipped if there is
// no GPU.
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gtest/gtest.h"
#include "tests/gpu/rank_device.h"
#include "worker/device/event.h"
#include "worker/device/generator.h"
#include "worker/device/host_values.h"
#include "worker/device/memory.h"
#include "worker/device/peak_flops.h"
#include "worker/device/readback.h"
#include "worker/memory/device_memory.h"
#include "worker/memory/memory_scope.h"
#include "worker/optim/clip.h"
#include "worker/optim/loss_scaler.h"
#include "worker/optim/optimizers.h"

namespace muster {
namespace {

using memory::Purpose;

const c10::Device kGpu(c10::kCUDA, 0);

class Device : public testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "this machine has no GPU, or this is not a build for GPUs";
  }
};

at::Tensor Numbers(int64_t count, double begin = 0, at::ScalarType type = at::kFloat) {
  return at::arange(count, type).mul_(0.7).add_(begin).sin_();
}

TEST_F(Device, CopiesThroughPinnedMemoryDoNotChangeABit) {
  const at::Tensor here = Numbers(1000), there = here.to(kGpu);
  const at::Tensor host = device::HostLike(there);
  EXPECT_TRUE(host.is_pinned());
  device::CopyAll(host, there);
  device::Event::Now(kGpu).Await();
  EXPECT_TRUE(host.equal(here));
  device::CopyBytes(there, 40, there, 400, 40);
  device::ZeroBytes(there, 0, 8);
  at::Tensor expected = here.clone();
  expected.narrow(0, 10, 10).copy_(here.narrow(0, 100, 10));
  expected.narrow(0, 0, 2).zero_();
  EXPECT_TRUE(there.cpu().equal(expected));
  const std::vector<float> values = {1, 2, 3};
  device::CopyFromHost(there, 4, values.data(), 12);
  EXPECT_EQ(there[3].item<float>(), 3);
}

TEST_F(Device, HashesDependOnTheBytesAlone) {
  const auto make = [] { return Numbers((1 << 20) + 5).to(kGpu); };
  const at::Tensor changed = make();
  changed.view(at::kInt)[-1].bitwise_xor_(1);
  const at::Tensor hashes = device::Hashes(kGpu, {make(), changed, make()}).cpu();
  EXPECT_TRUE(hashes[2].equal(hashes[0]));
  EXPECT_FALSE(hashes[1].equal(hashes[0]));
}

TEST_F(Device, StorageIsFreedAndTakenAgain) {
  const at::Tensor there = Numbers(1 << 20).to(kGpu);
  device::ResizeStorage(there, 0);
  EXPECT_EQ(there.storage().nbytes(), 0u);
  device::ResizeStorage(there, 4 << 20);
  there.fill_(2);
  EXPECT_EQ(there.sum().item<float>(), 2 << 20);
}

TEST_F(Device, GeneratorsRepeatTheirNumbers) {
  const auto numbers = [](uint64_t seed) {
    at::Generator generator = device::NewGenerator(kGpu);
    generator.set_current_seed(seed);
    return at::rand({100}, generator, at::TensorOptions(kGpu)).cpu();
  };
  EXPECT_TRUE(numbers(5).equal(numbers(5)));
  EXPECT_FALSE(numbers(5).equal(numbers(6)));
}

TEST_F(Device, NumbersAreReadBackWithoutAWaitBeforeThat) {
  const at::Tensor there = Numbers(1 << 22).to(kGpu);
  const double expected = there.sum().item<double>();
  ForbidWaiting(true);
  EXPECT_THROW(there.sum().item<double>(), c10::Error);
  const device::Readback sums({there.sum(), there.gt(2).any()});
  ForbidWaiting(false);
  EXPECT_EQ(sums.Await()[0], expected);
  EXPECT_EQ(sums.Await()[1], 0);
}

TEST_F(Device, OptimizersStepAsOnTheCpuAndSkipByAFlag) {
  for (const optim::OptimizerOptions& options :
       {optim::OptimizerOptions(optim::AdamWOptions{.weight_decay = 0.1}),
        optim::OptimizerOptions(optim::SgdOptions{.momentum = 0.9}),
        optim::OptimizerOptions(optim::LionOptions{.weight_decay = 0.1}),
        optim::OptimizerOptions(optim::AdadeltaOptions{.weight_decay = 0.1})}) {
    const at::Tensor here = Numbers(1000, 1), there = here.to(kGpu);
    auto on_cpu = *optim::CreateOptimizer({{"p", here}}, options);
    auto on_gpu = *optim::CreateOptimizer({{"p", there}}, options);
    for (int step = 0; step < 5; ++step) {
      const bool skips = step == 2;
      here.mutable_grad() = Numbers(1000, 5 * step);
      there.mutable_grad() = here.grad().to(kGpu);
      if (skips) there.mutable_grad().fill_(NAN);
      const at::Tensor skip = at::full({}, skips ? 1.0 : 0.0, at::TensorOptions(kGpu));
      ForbidWaiting(true);
      EXPECT_TRUE(on_gpu->Step(0.01, skip).ok());
      ForbidWaiting(false);
      if (!skips) {
        EXPECT_TRUE(on_cpu->Step(0.01).ok());
      }
    }
    // Lion steps by a sign, which depends on rounding if its argument is near zero.
    const at::Tensor difference = (there.cpu() - here).abs();
    EXPECT_LE(difference.median().item<float>(), 1e-6);
    EXPECT_LE(difference.max().item<float>(), 0.11);
    EXPECT_EQ(on_gpu->State().size(), on_cpu->State().size());
  }
}

TEST_F(Device, TheNormIsThatOfTheCpu) {
  const std::vector<at::Tensor> here = {Numbers(1000, 1), Numbers(77, 2)};
  const std::vector<at::Tensor> there = {here[0].to(kGpu), here[1].to(kGpu)};
  const float norm = optim::NormOf({optim::SumOfSquares(here)});
  EXPECT_NEAR(optim::SumOfSquaresOn(kGpu, there).sqrt().item<float>(), norm, 1e-6 * norm);
}

TEST_F(Device, ThePeakOfThisGpuIsKnown) {
  EXPECT_GT(device::PeakFlopsOf(kGpu, /*half=*/true), 1e12);
  EXPECT_GT(device::PeakFlopsOf(kGpu, false), 1e12);
}

TEST_F(Device, MemoryCountsForItsPurposeUntilItIsFreed) {
  memory::CountDeviceMemory();
  const auto bytes = [](Purpose purpose) {
    return memory::DeviceMemoryInUse().in_use.of(purpose).bytes;
  };
  at::Tensor weight;
  {
    const memory::MemoryScope scope(Purpose::kParameters);
    weight = at::ones({512, 512}, at::TensorOptions(kGpu)).requires_grad_(true);
  }
  EXPECT_EQ(bytes(Purpose::kParameters), 512u * 512 * 4);
  {
    const memory::MemoryScope scope(Purpose::kActivations);
    (weight * weight).sum().backward();
  }
  // The gradient, which autograd's thread has made.
  EXPECT_EQ(bytes(Purpose::kActivations), 512u * 512 * 4);
  EXPECT_EQ(bytes(Purpose::kOther), 0u);
  EXPECT_GE(memory::DeviceMemoryInUse().reserved_bytes, 2 * 512u * 512 * 4);
  weight.reset();
  EXPECT_EQ(bytes(Purpose::kParameters) + bytes(Purpose::kActivations), 0u);
  EXPECT_GE(memory::DeviceMemoryInUse().in_use.total.peak_bytes, 2 * 512u * 512 * 4);
}

}  // namespace
}  // namespace muster
