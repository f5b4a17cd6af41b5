// The expected results come from the same code, run without a recording.
#include "worker/models/plugin/recording.h"

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/memory/counting_allocator.h"
#include "worker/models/seed.h"

namespace muster::models {
namespace {

using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;
using Code = std::function<Tensors()>;

class RecordingTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::InstallCountingAllocator(); }

  // Expects that recorded tensors have no memory and, in any order, the values of an ordinary run.
  static void ExpectTheSame(const Code& code) {
    torch::manual_seed(5);
    const Tensors whole = code();
    const at::Tensor after = at::rand({3});
    Recording recording(5);
    Tensors recorded;
    {
      const Recording::Scope scope(&recording);
      recorded = code();
    }
    recording.End();
    EXPECT_TRUE(at::rand({3}).equal(after)) << "the process's generator goes on as always";
    ASSERT_EQ(recorded.size(), whole.size());
    for (size_t i = whole.size(); i-- > 0;) {
      SCOPED_TRACE(i);
      ASSERT_EQ(recorded[i].sizes(), whole[i].sizes());
      ASSERT_TRUE(recording.Has(recorded[i]));
      EXPECT_TRUE(recorded[i].is_cpu());
      EXPECT_EQ(recorded[i].strides(), whole[i].strides());
      EXPECT_EQ(recorded[i].requires_grad(), whole[i].requires_grad());
      const auto maker = recording.Maker(recorded[i]);
      EXPECT_TRUE(maker().equal(whole[i].detach()));
      EXPECT_TRUE(maker().equal(whole[i].detach())) << "again";
    }
    recording.Settle();
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(recorded[i].equal(whole[i])) << i;
  }

  static std::string Refusal(const Code& code) {
    Recording recording(5);
    try {
      const Recording::Scope scope(&recording);
      code();
    } catch (const std::exception&) {  // LibTorch's exception, too, for an address
    }
    try {
      recording.End();
    } catch (const Recording::Refused& refused) {
      return refused.what();
    }
    return "";
  }
};

constexpr int64_t kWidth = 64;  // 64 x 64 floats are not small

TEST_F(RecordingTest, ModulesOfTheFrontendHaveTheSameBits) {
  ExpectTheSame([] {
    torch::nn::Sequential net(torch::nn::Linear(kWidth, 2 * kWidth),
                              torch::nn::Conv2d(torch::nn::Conv2dOptions(20, 30, 3)),
                              torch::nn::Linear(2 * kWidth, kWidth));
    return Tensors{net->parameters()};
  });
}

TEST_F(RecordingTest, OperationsOnWhatWasMadeHaveTheSameBits) {
  ExpectTheSame([] {
    const at::NoGradGuard no_grad;
    const at::Tensor a = at::randn({kWidth, kWidth}).mul_(0.1);
    const at::Tensor b = at::eye(kWidth) + a.t().contiguous();
    b.select(0, 3).fill_(2);  // a view
    b.narrow(1, 0, 8).copy_(at::ones({kWidth, 8}) * a.narrow(1, 0, 8));
    const at::Tensor c = at::cat({a, b}).reshape({-1});
    const at::Tensor d =
        at::randn({kWidth, kWidth}, MakeGenerator(9)).to(at::kDouble).to(at::kFloat);
    at::Tensor e = at::empty({kWidth, kWidth});
    e.normal_(0, 0.02).clamp_(-0.03, 0.03);
    return Tensors{a, b, c, d, e.requires_grad_(true)};
  });
}

TEST_F(RecordingTest, SmallThingsHaveTheirValuesAtOnce) {
  ExpectTheSame([] {
    const at::Tensor rates = at::linspace(0, 0.5, 4);
    const at::Tensor some = at::tensor({1.5f, 2.5f});
    const double rate = rates[2].item<double>();
    return Tensors{at::full({kWidth, kWidth}, rate) * some[1]};
  });
}

TEST_F(RecordingTest, ASmallTensorThatIsDrawnWaitsForThoseBeforeIt) {
  ExpectTheSame([] {
    at::Tensor large = at::empty({kWidth, kWidth});
    at::Tensor small = at::empty({4});
    large.uniform_();
    small.uniform_();
    return Tensors{large, small};
  });
}

TEST_F(RecordingTest, TheCodesOwnGeneratorGoesOnAsAlways) {
  at::Generator whole = MakeGenerator(3);
  at::Generator recorded = MakeGenerator(3);
  const auto code = [](at::Generator generator) {
    const at::Tensor a = at::empty({kWidth, kWidth}).normal_(0, 1, generator);
    return at::randn({kWidth, kWidth}, generator) + a;
  };
  const at::Tensor expected = code(whole);
  Recording recording(5);
  at::Tensor found;
  {
    const Recording::Scope scope(&recording);
    found = code(recorded);
  }
  recording.End();
  EXPECT_TRUE(recording.Maker(found)().equal(expected));
  EXPECT_TRUE(at::rand({3}, recorded).equal(at::rand({3}, whole)));
}

TEST_F(RecordingTest, WhatCannotBeRepeatedIsRefusedWithTheReason) {
  const auto large = [] { return at::ones({kWidth, kWidth}); };
  EXPECT_EQ(Refusal([&] { return Tensors{large()}; }), "");
  EXPECT_THAT(Refusal([&] {
                large().sum().item<float>();
                return Tensors();
              }),
              HasSubstr("aten::_local_scalar_dense: "));
  EXPECT_THAT(Refusal([&] {
                large().nonzero();
                return Tensors();
              }),
              HasSubstr("aten::nonzero: "));
  EXPECT_THAT(Refusal([&] {
                at::randn({kWidth, kWidth});
                torch::manual_seed(1);
                return Tensors{at::randn({kWidth, kWidth})};
              }),
              HasSubstr("seeded a generator again"));
  EXPECT_THAT(Refusal([&] {
                large().resize_({3});
                return Tensors();
              }),
              HasSubstr("aten::resize_: "));
  EXPECT_THAT(Refusal([&] { return Tensors{large().requires_grad_(true) * 2}; }),
              HasSubstr("a gradient's graph"));
  EXPECT_THAT(Refusal([&] {
                static std::vector<float> own(1 << 20);
                return Tensors{large().reshape({-1}) +
                               at::from_blob(own.data(), {1 << 20}).narrow(0, 0, kWidth * kWidth)};
              }),
              HasSubstr("values that the model's code made itself"));
}

TEST_F(RecordingTest, ACaughtRefusalStaysOne) {
  EXPECT_THAT(Refusal([] {
                const at::Tensor large = at::ones({kWidth, kWidth});
                try {
                  large.sum().item<float>();
                } catch (const std::exception&) {
                }
                return Tensors{large};
              }),
              HasSubstr("asks for a value"));
}

TEST_F(RecordingTest, TheAddressOfAValueIsAnError) {
  Recording recording(5);
  const Recording::Scope scope(&recording);
  const at::Tensor large = at::ones({kWidth, kWidth});
  EXPECT_THROW(large.data_ptr(), c10::Error);
  EXPECT_THROW(large.const_data_ptr<float>(), c10::Error);
}

TEST_F(RecordingTest, NoMoreThanOneTensorIsInMemory) {
  constexpr int kLayers = 8;
  constexpr int64_t kBytes = 4 * 256 * 256;
  memory::ResetPeaks();
  const uint64_t before = memory::MemoryInUse().total.bytes;
  Recording recording(5);
  Tensors layers;
  {
    const Recording::Scope scope(&recording);
    for (int i = 0; i < kLayers; ++i) layers.push_back(at::empty({256, 256}).normal_(0, 0.1));
  }
  EXPECT_LT(memory::MemoryInUse().total.peak_bytes - before, 100000u);
  recording.End();
  for (const at::Tensor& layer : layers) recording.Maker(layer)();
  EXPECT_LT(memory::MemoryInUse().total.peak_bytes - before, kBytes + 300000u)
      << "one layer, and the generator's states";
}

}  // namespace
}  // namespace muster::models
