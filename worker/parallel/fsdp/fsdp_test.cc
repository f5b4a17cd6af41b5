// Training with FSDP gives the same numbers as training the plain model.
#include "worker/parallel/fsdp/fsdp.h"

#include <memory>
#include <string>
#include <vector>

#include "c10/core/GradMode.h"
#include "gtest/gtest.h"
#include "worker/models/seed.h"
#include "worker/parallel/ddp/ddp.h"
#include "worker/parallel/fsdp/layers.h"
#include "worker/parallel/fsdp/layers_training.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {
namespace {

// Returns every choice of frozen parameters with every combination of flags; world sizes take
// turns.
std::vector<Setting> Settings() {
  std::vector<Setting> all;
  int mask = 0;
  for (const auto& [name, frozen] : kFrozen) {
    for (int bits = 0; bits < 32; ++bits) {
      all.push_back({.frozen = name,
                     .world_size = 1 + (mask + bits + bits / 4 + bits / 16) % 4,
                     .micro_batches = 1 + (bits & 1),
                     .reshard_after_forward = (bits & 2) != 0,
                     .input_requires_grad = (bits & 4) != 0,
                     .twice = (bits & 8) != 0,
                     .recompute = (bits & 16) != 0});
    }
    ++mask;
  }
  return all;
}

class FsdpParity : public testing::TestWithParam<Setting> {};

INSTANTIATE_TEST_SUITE_P(All, FsdpParity, testing::ValuesIn(Settings()), [](const auto& info) {
  const Setting& one = info.param;
  return one.frozen + std::to_string(one.world_size) + "Accumulate" +
         std::to_string(one.micro_batches) + (one.reshard_after_forward ? "Reshard" : "Keep") +
         (one.input_requires_grad ? "InputGrad" : "") + (one.twice ? "Twice" : "") +
         (one.recompute ? "Recompute" : "");
});

TEST_P(FsdpParity, GradientsAndParametersAreThoseOfThePlainModelToTheBit) {
  const Setting setting = GetParam();
  RunRanks(setting.world_size, [&](comm::Communicator& ranks) {
    Layers net(4, setting.twice), plain(4, setting.twice);
    Freeze(net, kFrozen.at(setting.frozen));
    Freeze(plain, kFrozen.at(setting.frozen));
    const auto strategy = CreateFsdp(net.Parameters(), {}, &net, &ranks,
                                     {.reshard_after_forward = setting.reshard_after_forward});
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
    if (setting.recompute) Recompute(net, context.get());
    const auto expected = plain.Parameters();
    for (int64_t step = 0; step < 3; ++step) {
      TrainStep(**strategy, *context, net, setting, ranks.rank(), step);
      const auto gradients = ReferenceStep(plain, setting, step);
      for (const Piece& piece : (*strategy)->pieces()) {
        const auto part = [&](const at::Tensor& whole) {
          return whole.detach().reshape({-1}).narrow(0, piece.begin, piece.tensor.numel());
        };
        EXPECT_TRUE(SameBits(piece.tensor.grad(), part(gradients[piece.parameter])))
            << expected[piece.parameter].name << " in step " << step;
        EXPECT_TRUE(SameBits(piece.tensor, part(expected[piece.parameter].tensor)))
            << expected[piece.parameter].name << " in step " << step;
      }
      if (step == 1) {  // an evaluation between two steps changes nothing
        const c10::NoGradGuard no_grad;
        LossOf(net, *context, ranks.rank(), 77, 0, false);
      }
    }
    ExpectParameters(**strategy, net, plain);
  });
}

TEST(Fsdp, ChangesOfGatheredParametersAreKept) {
  RunRanks(3, [&](comm::Communicator& ranks) {
    Layers net(2), expected(2);
    const auto strategy = CreateFsdp(net.Parameters(), {}, &net, &ranks, {});
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    ASSERT_TRUE((*strategy)->store().Gather(AllOf(net)).ok());
    const c10::NoGradGuard no_grad;
    for (const Layers* one : {&net, &expected}) {
      for (const auto& [name, tensor] : one->Parameters()) at::Tensor(tensor).mul_(0.5);
    }
    (*strategy)->store().Release();
    ExpectParameters(**strategy, net, expected);
  });
}

TEST(Fsdp, ThawingAndFreezingAgainWithANewPlanIsThatOfThePlainModel) {
  for (const bool recompute : {false, true}) {
    const Setting setting{.world_size = 3, .micro_batches = 2, .recompute = recompute};
    RunRanks(setting.world_size, [&](comm::Communicator& ranks) {
      Layers net(4), plain(4);
      int64_t step = 0;
      for (const char* frozen :
           {"EveryOther", "Parts", "EveryOther", "Root", "None", "AllButBiases"}) {
        Freeze(net, kFrozen.at(frozen));
        Freeze(plain, kFrozen.at(frozen));
        const auto strategy = CreateFsdp(net.Parameters(), {}, &net, &ranks, {});
        ASSERT_TRUE(strategy.ok()) << strategy.status();
        const auto context =
            (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
        if (recompute) Recompute(net, context.get());
        for (int i = 0; i < 2; ++i, ++step) {
          TrainStep(**strategy, *context, net, setting, ranks.rank(), step);
          ReferenceStep(plain, setting, step);
        }
        ExpectParameters(**strategy, net, plain);
        ASSERT_TRUE((*strategy)->store().Gather(AllOf(net)).ok());  // for the next plan
      }
    });
  }
}

// The independent run uses a plain model whose parameters are the rounded masters. Its input and
// output are cast like the root's.
TEST(Fsdp, ParametersInBfloat16AreTheMastersRoundedAndGradientsAddUpInFloat32) {
  for (const char* frozen : {"None", "EveryOther"}) {
    const Setting setting{.world_size = 3, .micro_batches = 2};
    RunRanks(setting.world_size, [&](comm::Communicator& ranks) {
      Layers net(4), masters(4), rounded(4);
      for (const Layers* one : {&net, &masters, &rounded}) Freeze(*one, kFrozen.at(frozen));
      const auto strategy =
          CreateFsdp(net.Parameters(), {}, &net, &ranks, {.parameters_in_bfloat16 = true});
      ASSERT_TRUE(strategy.ok()) << strategy.status();
      const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
      models::ForwardContext plain(models::Mode::kTrain, models::MakeGenerator(1));
      const auto master = masters.Parameters();
      for (int64_t step = 0; step < 3; ++step) {
        TrainStep(**strategy, *context, net, setting, ranks.rank(), step);
        std::vector<at::Tensor> sums(master.size());
        for (int rank = 0; rank < setting.world_size; ++rank) {
          std::vector<at::Tensor> own(master.size());
          for (int m = 0; m < setting.micro_batches; ++m) {
            const auto low = rounded.Parameters();
            for (size_t i = 0; i < low.size(); ++i) {
              at::Tensor(low[i].tensor).set_data(master[i].tensor.detach().to(at::kBFloat16));
              at::Tensor(low[i].tensor).mutable_grad().reset();
            }
            const at::Tensor x = Numbers({5, Layers::kWidth}, 1000 * step + 100 * m + rank);
            plain.Call(rounded, x.to(at::kBFloat16)).to(at::kFloat).square().mean().backward();
            for (size_t i = 0; i < low.size(); ++i) {
              if (!low[i].tensor.requires_grad()) continue;
              const at::Tensor gradient = low[i].tensor.grad().to(at::kFloat);
              own[i] = m == 0 ? gradient : own[i] + gradient;
            }
          }
          for (size_t i = 0; i < own.size(); ++i) {
            if (own[i].defined()) sums[i] = rank == 0 ? own[i] : sums[i] + own[i];
          }
        }
        const c10::NoGradGuard no_grad;
        for (size_t i = 0; i < master.size(); ++i) {
          if (!sums[i].defined()) continue;
          at::Tensor(master[i].tensor).detach().sub_(sums[i] / 6.0, kLearningRate);
        }
        for (const Piece& piece : (*strategy)->pieces()) {
          const at::Tensor expected = master[piece.parameter].tensor.detach().reshape({-1}).narrow(
              0, piece.begin, piece.tensor.numel());
          EXPECT_TRUE(SameBits(piece.tensor, expected))
              << master[piece.parameter].name << " in step " << step;
        }
      }
      ExpectParameters(**strategy, net, masters);
    });
  }
}

// Counts its forwards in one buffer, and keeps a moving average of its outputs in the other.
class Counting : public models::Unit {
 public:
  Counting() : Unit("counting.0") {
    AddParameter("weight", Numbers({3}, 5));
    const auto buffers = MakeBuffers();
    for (size_t i = 0; i < 2; ++i) AddBuffer(buffers[i].name, buffers[i].tensor);
  }
  at::Tensor Forward(const at::Tensor& x, models::ForwardContext&) override {
    const at::Tensor y = (x * parameter(0)).sin();
    const c10::NoGradGuard no_grad;
    at::Tensor(buffer(0)).mul_(0.5).add_(y.detach().mean(0));
    at::Tensor(buffer(1)).add_(1);
    return y;
  }
};

class Twice : public models::Unit {
 public:
  Twice() : Unit("") { AddChild(std::make_unique<Counting>()); }
  at::Tensor Forward(const at::Tensor& x, models::ForwardContext& context) override {
    return context.Call(*children()[0], context.Call(*children()[0], x));
  }
};

// When the first call is recomputed, the buffers have their values from before this call. The last
// gradient, which completes the bucket, arrives during this recomputation.
TEST(Fsdp, BuffersOfAUnitThatIsRecomputedTwiceAreThoseOfItsLastForward) {
  for (const bool whole : {true, false}) {
    RunRanks(2, [&](comm::Communicator& ranks) {
      Twice net, plain;
      const auto strategy = whole ? CreateDdp(net.Parameters(), net.Buffers(), &ranks, {})
                                  : CreateFsdp(net.Parameters(), net.Buffers(), &net, &ranks, {});
      ASSERT_TRUE(strategy.ok()) << strategy.status();
      const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
      context->Recompute({net.children()[0].get()});
      models::ForwardContext plainly(models::Mode::kTrain, models::MakeGenerator(1));
      for (int64_t step = 0; step < 2; ++step) {
        (*strategy)->BeginStep({step, 2.0});
        for (int m = 0; m < 2; ++m) {
          (*strategy)->BeginMicroBatch(m == 1);
          const auto input = [&](int rank) { return Numbers({4, 3}, 100 * step + 10 * m + rank); };
          context->Call(net, input(ranks.rank())).sum().backward();
          plainly.Call(plain, input(1));  // the buffers of the highest rank
        }
        ASSERT_TRUE((*strategy)->FinishBackward().ok());
        for (size_t i = 0; i < 2; ++i) {
          EXPECT_TRUE(SameBits(net.Buffers()[i].tensor, plain.Buffers()[i].tensor))
              << net.Buffers()[i].name << " in step " << step;
        }
      }
    });
  }
}

}  // namespace
}  // namespace muster::parallel
