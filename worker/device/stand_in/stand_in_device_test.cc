#include "worker/device/stand_in/stand_in_device.h"

#include <cstdint>
#include <vector>

#include "ATen/ATen.h"
#include "c10/core/Event.h"
#include "c10/util/Exception.h"
#include "gtest/gtest.h"
#include "worker/device/event.h"
#include "worker/device/host_values.h"
#include "worker/device/memory.h"
#include "worker/device/readback.h"

namespace muster::device {
namespace {

at::Tensor Numbers(at::IntArrayRef sizes, double begin) {
  const at::Tensor numbers = at::empty(sizes, at::kFloat);
  for (float& value : MutableHostValues<float>(numbers)) value = begin += 0.37;
  return numbers.sin();
}

at::Tensor There(const at::Tensor& tensor) { return tensor.to(StandInDevice()); }

bool Same(const at::Tensor& there, const at::Tensor& here) {
  EXPECT_EQ(there.device(), StandInDevice());
  EXPECT_TRUE(here.is_cpu());
  return there.cpu().equal(here);
}

// A small network with the operations of models: views, a transposed weight, softmax, a loss over
// indices.
std::vector<at::Tensor> Gradients(c10::Device device) {
  const at::Tensor weight = Numbers({6, 4}, 1).to(device).requires_grad_(true);
  const at::Tensor bias = Numbers({6}, 2).to(device).requires_grad_(true);
  const at::Tensor scale = Numbers({3}, 3).to(device).requires_grad_(true);
  const at::Tensor x = Numbers({5, 4}, 4).to(device);
  const at::Tensor labels = at::arange(5, at::kLong).remainder(3).to(device);
  const at::Tensor hidden = at::gelu(at::linear(x, weight, bias)).view({5, 3, 2}).transpose(1, 2);
  const at::Tensor out = (hidden * scale).softmax(-1).select(1, 0);
  at::nll_loss(out.log(), labels).backward();
  return {weight.grad(), bias.grad(), scale.grad()};
}

TEST(StandInDevice, ComputesTheGradientsOfTheCpu) {
  const auto here = Gradients(at::kCPU), there = Gradients(StandInDevice());
  for (size_t i = 0; i < here.size(); ++i) EXPECT_TRUE(Same(there[i], here[i])) << i;
}

TEST(StandInDevice, OperationsOverListsChangeTheTensorsOfTheList) {
  std::vector<at::Tensor> here, there;
  for (int i = 0; i < 4; ++i) {
    here.push_back(Numbers({3}, i));
    there.push_back(There(here.back()));
  }
  for (auto* all : {&here, &there}) {
    at::Tensor step = at::zeros({}, (*all)[0].options());
    at::_foreach_add_({step}, 1);
    at::_fused_adamw_({(*all)[0]}, {(*all)[1]}, {(*all)[2]}, {(*all)[3].square_()}, {}, {step}, 0.1,
                      0.9, 0.99, 0.1, 1e-8, false, false);
    all->push_back(step);
  }
  for (size_t i = 0; i < here.size(); ++i) EXPECT_TRUE(Same(there[i], here[i])) << i;
}

TEST(StandInDevice, TensorsOfTwoDevicesDoNotMix) {
  const at::Tensor here = Numbers({3}, 1), there = There(here);
  EXPECT_THROW(here + there, c10::Error);
  EXPECT_THROW(HostValues<float>(there), c10::Error);
}

TEST(StandInDevice, AViewSharesItsMemory) {
  const at::Tensor here = Numbers({4, 3}, 1), there = There(here);
  there.t().narrow(0, 1, 2).mul_(2);
  here.t().narrow(0, 1, 2).mul_(2);
  EXPECT_TRUE(Same(there, here));
}

TEST(StandInDevice, AParameterMovesThereWithItsFlags) {
  const at::Tensor parameter = Numbers({4}, 1).requires_grad_(true);
  const at::Tensor before = parameter.detach().clone();
  parameter.set_data(There(parameter.detach()));
  EXPECT_TRUE(parameter.requires_grad() && parameter.is_leaf());
  (parameter * parameter).sum().backward();
  EXPECT_TRUE(Same(parameter.grad(), before * 2));
}

TEST(StandInDevice, HashesDependOnAllBytes) {
  // Returns tensors of more numbers than one part of a sum, of three bytes, of four bytes from an
  // unaligned begin, and of none.
  const auto make = [] {
    const at::Tensor bytes = There(at::arange(9, at::kByte));
    return std::vector<at::Tensor>{There(Numbers({(1 << 20) + 5}, 1)), bytes.narrow(0, 0, 3),
                                   bytes.narrow(0, 5, 4), bytes.narrow(0, 0, 0)};
  };
  const auto hashes = [](const std::vector<at::Tensor>& tensors) {
    return Hashes(StandInDevice(), tensors).to(at::kCPU);
  };
  const at::Tensor before = hashes(make());
  EXPECT_TRUE(hashes(make()).equal(before));
  for (size_t i = 0; i < 3; ++i) {
    const auto bytes = static_cast<int64_t>(make()[i].nbytes());
    for (const int64_t byte : {int64_t{0}, bytes - 1}) {
      const auto changed = make();
      CopyFromHost(changed[i], byte, "\x81", 1);
      EXPECT_FALSE(hashes(changed)[i].equal(before[i])) << i << ", byte " << byte;
    }
  }
  const auto two = make();  // to change the order of the numbers
  const at::Tensor first = two[0].narrow(0, 0, 1).clone();
  two[0].narrow(0, 0, 1).copy_(two[0].narrow(0, 1 << 20, 1));
  two[0].narrow(0, 1 << 20, 1).copy_(first);
  EXPECT_FALSE(hashes(two)[0].equal(before[0]));
}

TEST(StandInDevice, MemoryIsCopiedZeroedAndResizedThere) {
  const at::Tensor here = Numbers({6}, 1), there = There(here);
  ZeroBytes(there, 4, 12);
  ZeroBytes(here, 4, 12);
  EXPECT_TRUE(Same(there, here));
  CopyBytes(there, 0, here, 12, 12);
  CopyBytes(here, 0, here, 12, 12);
  EXPECT_TRUE(Same(there, here));
  const at::Tensor host = HostLike(there);
  CopyAll(host, there);
  EXPECT_TRUE(host.equal(here));
  ResizeStorage(there, 0);
  EXPECT_EQ(there.storage().nbytes(), 0u);
  ResizeStorage(there, 24);
  CopyAll(there, here);
  EXPECT_TRUE(Same(there, here));
}

TEST(StandInDevice, TensorsAreOnTheDeviceThatWasNamed) {
  const at::Tensor first = There(Numbers({3}, 1)), third = first.to(StandInDevice(2));
  EXPECT_EQ(third.device().index(), 2);
  EXPECT_EQ((third * 2).device().index(), 2);
  EXPECT_EQ(at::zeros_like(third).device().index(), 2);
  EXPECT_TRUE(third.cpu().equal(first.cpu()));
}

TEST(StandInDevice, WhatAHostWouldWaitForThrowsIfItIsForbidden) {
  const at::Tensor here = Numbers({6}, 1), there = There(here);
  EXPECT_EQ(there[1].item<float>(), here[1].item<float>());
  const NoWaiting no_waiting;
  EXPECT_THROW(there[1].item<float>(), c10::Error);
  EXPECT_THROW(there.cpu(), c10::Error);
  EXPECT_THROW(There(here), c10::Error);
  const at::Tensor pinned = PinnedFor(there.device(), here);
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_THROW(There(pinned), c10::Error);  // a copy that blocks
  CopyAll(there, pinned);
  const Readback sums({there.sum(), there.gt(0), there.mul(2)});
  const auto values = sums.Await();
  ASSERT_EQ(values.size(), 13u);
  EXPECT_EQ(values[0], here.sum().item<float>());
  EXPECT_EQ(values[1], here[0].item<float>() > 0);
  EXPECT_EQ(values[12], 2 * here[5].item<float>());
}

TEST(StandInDevice, EventsAreReached) {
  const Event event = Event::Now(StandInDevice());
  EXPECT_TRUE(event.Reached());
  event.Await();
  event.Precede(StandInDevice());
}

}  // namespace
}  // namespace muster::device
