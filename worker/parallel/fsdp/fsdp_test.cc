#include "worker/parallel/fsdp/fsdp.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "c10/core/GradMode.h"
#include "gtest/gtest.h"
#include "worker/comm/local/local_group.h"
#include "worker/models/context_error.h"
#include "worker/models/seed.h"
#include "worker/parallel/ddp/ddp.h"
#include "worker/parallel/fsdp/layers.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {
namespace {

using Frozen = std::function<bool(const std::string& name)>;

const std::map<std::string, Frozen> kFrozen = {
    {"None", [](const std::string&) { return false; }},
    {"EveryOther",
     [](const std::string& name) {
       return name.rfind("layers.1", 0) == 0 || name.rfind("layers.3", 0) == 0;
     }},
    {"Parts",
     [](const std::string& name) { return name == "layers.0.weight" || name == "layers.2.bias"; }},
    {"First", [](const std::string& name) { return name.rfind("layers.0", 0) == 0; }},
    {"Last", [](const std::string& name) { return name.rfind("layers.3", 0) == 0; }},
    {"Root", [](const std::string& name) { return name == "scale"; }},
    {"AllButBiases",
     [](const std::string& name) { return name.find("bias") == std::string::npos; }},
};

void Freeze(const models::Unit& net, const Frozen& frozen) {
  for (const auto& [name, tensor] : net.Parameters()) {
    at::Tensor(tensor).requires_grad_(!frozen(name));
  }
}

at::Tensor LossOf(models::Unit& net, models::ForwardContext& context, int rank, int64_t step,
                  int micro_batch, bool input_requires_grad) {
  at::Tensor x = Numbers({5, Layers::kWidth}, 1000 * step + 100 * micro_batch + rank);
  x.requires_grad_(input_requires_grad);
  return context.Call(net, x).square().mean();
}

struct Setting {
  std::string frozen = "None";
  int world_size = 2;
  int micro_batches = 1;
  bool reshard_after_forward = true;
  bool input_requires_grad = false;
  bool twice = false;
  bool recompute = false;
};

// All masks with all flags, in turn with all world sizes.
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

void Recompute(const Layers& net, models::ForwardContext* context) {
  std::vector<const models::Unit*> units;
  for (const auto& child : net.children()) units.push_back(child.get());
  context->Recompute(units);
}

constexpr double kLearningRate = 0.05;

// The independent run: plain autograd of each rank's samples, sums in rank order, one division.
std::vector<at::Tensor> ReferenceStep(Layers& net, const Setting& setting, int64_t step) {
  models::ForwardContext context(models::Mode::kTrain, models::MakeGenerator(1));
  // Changes nothing, but for the order in which the gradients of a unit's two calls are added.
  if (setting.recompute && setting.twice) Recompute(net, &context);
  const auto parameters = net.Parameters();
  std::vector<at::Tensor> sums(parameters.size());
  for (int rank = 0; rank < setting.world_size; ++rank) {
    for (const auto& parameter : parameters) at::Tensor(parameter.tensor).mutable_grad().reset();
    for (int m = 0; m < setting.micro_batches; ++m) {
      LossOf(net, context, rank, step, m, setting.input_requires_grad).backward();
    }
    const c10::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].tensor.requires_grad()) continue;
      const at::Tensor gradient = parameters[i].tensor.grad();
      sums[i] = rank == 0 ? gradient.clone() : sums[i] + gradient;
    }
  }
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!sums[i].defined()) continue;
    sums[i] = sums[i] / static_cast<double>(setting.world_size * setting.micro_batches);
    at::Tensor(parameters[i].tensor).detach().sub_(sums[i], kLearningRate);
  }
  return sums;
}

void TrainStep(Strategy& strategy, models::ForwardContext& context, Layers& net,
               const Setting& setting, int rank, int64_t step) {
  strategy.BeginStep(step, setting.world_size * setting.micro_batches);
  for (int m = 0; m < setting.micro_batches; ++m) {
    strategy.BeginMicroBatch(m + 1 == setting.micro_batches);
    LossOf(net, context, rank, step, m, setting.input_requires_grad).backward();
  }
  const absl::Status status = strategy.FinishBackward();
  ASSERT_TRUE(status.ok()) << status;
  const c10::NoGradGuard no_grad;
  for (const Piece& piece : strategy.pieces()) {
    at::Tensor(piece.tensor).sub_(piece.tensor.grad(), kLearningRate);
  }
  strategy.FinishUpdate();
}

std::vector<size_t> AllOf(const Layers& net) {
  std::vector<size_t> all;
  for (size_t i = 0; i < net.Parameters().size(); ++i) all.push_back(i);
  return all;
}

void ExpectParameters(Strategy& strategy, const Layers& net, const Layers& expected_net) {
  ASSERT_TRUE(strategy.GatherParameters(AllOf(net)).ok());
  const auto found = net.Parameters();
  const auto expected = expected_net.Parameters();
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(SameBits(found[i].tensor.detach(), expected[i].tensor.detach()))
        << expected[i].name;
  }
  strategy.ReleaseParameters();
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
      if (step == 1) {  // an evaluation in between changes nothing
        const c10::NoGradGuard no_grad;
        LossOf(net, *context, ranks.rank(), 77, 0, false);
      }
    }
    ExpectParameters(**strategy, net, plain);
  });
}

std::string Text(const UnitEvent& event) {
  constexpr const char* kKinds[] = {"gather", "free", "forward", "before backward",
                                    "after backward"};
  return std::string(kKinds[static_cast<int>(event.kind)]) + " " +
         (event.unit.empty() ? "root" : event.unit.substr(event.unit.rfind('.') + 1));
}

std::vector<UnitEvent> TraceOfTheSecondStep(int depth, const Setting& setting) {
  std::vector<UnitEvent> events;
  RunRanks(setting.world_size, [&](comm::Communicator& ranks) {
    Layers net(depth);
    Freeze(net, kFrozen.at(setting.frozen));
    bool on = false;
    FsdpOptions options{.reshard_after_forward = setting.reshard_after_forward};
    if (ranks.rank() == 0) {
      options.trace = [&](const UnitEvent& event) {
        if (on) events.push_back(event);
      };
    }
    const auto strategy = CreateFsdp(net.Parameters(), {}, &net, &ranks, options);
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
    for (int64_t step = 0; step < 2; ++step) {
      on = step == 1;
      TrainStep(**strategy, *context, net, setting, ranks.rank(), step);
    }
    on = false;
  });
  return events;
}

std::vector<std::string> Texts(const std::vector<UnitEvent>& events) {
  std::vector<std::string> texts;
  for (const UnitEvent& event : events) texts.push_back(Text(event));
  return texts;
}

// Layers 1 and 3 are frozen. One unit is gathered ahead; the last one to be gathered has no
// gradient of its input to wait for.
TEST(Fsdp, AFrozenUnitIsFreedBeforeTheBackwardOfTheOneBeforeItBegins) {
  EXPECT_EQ(Texts(TraceOfTheSecondStep(4, {.frozen = "EveryOther"})),
            (std::vector<std::string>{"gather root",
                                      "gather 0",
                                      "forward root",
                                      "gather 1",
                                      "forward 0",
                                      "free 0",
                                      "gather 2",
                                      "forward 1",
                                      "free 1",
                                      "gather 3",
                                      "forward 2",
                                      "free 2",
                                      "forward 3",
                                      "free 3",
                                      "gather 3",
                                      "gather 2",
                                      "before backward 3",
                                      "after backward 3",
                                      "free 3",
                                      "gather 1",
                                      "before backward 2",
                                      "after backward 2",
                                      "free 2",
                                      "gather 0",
                                      "before backward 1",
                                      "after backward 1",
                                      "free 1",
                                      "before backward 0",
                                      "free root",
                                      "free 0"}));
}

TEST(Fsdp, AUnitWhoseOutputNeedsNoGradientIsNotGatheredInBackward) {
  const auto texts = Texts(TraceOfTheSecondStep(3, {.frozen = "First"}));
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "gather 0"), 1);
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "gather 1"), 2);
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "before backward 0"), 0);
}

TEST(Fsdp, WithoutReshardingAfterForwardEachUnitIsGatheredOnce) {
  const auto texts = Texts(TraceOfTheSecondStep(4, {.reshard_after_forward = false}));
  for (const char* unit : {"gather root", "gather 0", "gather 1", "gather 2", "gather 3"}) {
    EXPECT_EQ(std::count(texts.begin(), texts.end(), unit), 1) << unit;
  }
}

// What is written into gathered parameters, the same on all ranks, is what training goes on from.
TEST(Fsdp, ChangesOfGatheredParametersAreKept) {
  RunRanks(3, [&](comm::Communicator& ranks) {
    Layers net(2), expected(2);
    const auto strategy = CreateFsdp(net.Parameters(), {}, &net, &ranks, {});
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    ASSERT_TRUE((*strategy)->GatherParameters(AllOf(net)).ok());
    const c10::NoGradGuard no_grad;
    for (const Layers* one : {&net, &expected}) {
      for (const auto& [name, tensor] : one->Parameters()) at::Tensor(tensor).mul_(0.5);
    }
    (*strategy)->ReleaseParameters();
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
        ASSERT_TRUE((*strategy)->GatherParameters(AllOf(net)).ok());  // for the next plan
      }
    });
  }
}

// A forward gathers ahead what came next in the one before, so one that ends early leaves something gathered. Between
// backward and update that is not what comes after.
TEST(Fsdp, WhatAnEvaluationGatheredAheadIsNotUsedAfterTheUpdate) {
  const Setting setting;
  RunRanks(setting.world_size, [&](comm::Communicator& ranks) {
    Layers net(4), plain(4);
    std::vector<std::string> events;
    const auto strategy = CreateFsdp(net.Parameters(), {}, &net, &ranks, {.trace = [&](const UnitEvent& event) {
                                       events.push_back(Text(event));
                                     }});
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
    (*strategy)->BeginStep(0, setting.world_size);
    (*strategy)->BeginMicroBatch(true);
    LossOf(net, *context, ranks.rank(), 0, 0, false).backward();
    ASSERT_TRUE((*strategy)->FinishBackward().ok());
    const c10::NoGradGuard no_grad;
    const at::Tensor x = Numbers({5, Layers::kWidth}, 1);
    net.StopAfter(1);
    events.clear();
    context->Call(net, x);
    EXPECT_EQ(std::count(events.begin(), events.end(), "gather 1"), 1);
    EXPECT_EQ(std::count(events.begin(), events.end(), "free 1"), 0);
    for (const Piece& piece : (*strategy)->pieces()) {
      at::Tensor(piece.tensor).sub_(piece.tensor.grad(), kLearningRate);
    }
    (*strategy)->FinishUpdate();
    net.StopAfter(4);
    const at::Tensor found = context->Call(net, x);
    {
      const c10::AutoGradMode with_gradients(true);
      ReferenceStep(plain, setting, 0);
    }
    models::ForwardContext plainly(models::Mode::kTrain, models::MakeGenerator(1));
    EXPECT_TRUE(SameBits(found, plainly.Call(plain, x)));
  });
}

// The independent run: a plain model whose parameters are the masters rounded, with its input and
// output cast as the root's.
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

// Counts its forwards, and keeps a mean of what it saw.
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

// While the first call is repeated the buffers are what they were before it, and just then the last gradient arrives.
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
        (*strategy)->BeginStep(step, 2.0);
        for (int m = 0; m < 2; ++m) {
          (*strategy)->BeginMicroBatch(m == 1);
          const auto input = [&](int rank) { return Numbers({4, 3}, 100 * step + 10 * m + rank); };
          context->Call(net, input(ranks.rank())).sum().backward();
          plainly.Call(plain, input(1));  // the highest rank's are everybody's
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

TEST(Fsdp, APeerThatIsGoneFailsTheForwardNamingUnitAndStep) {
  auto ranks = comm::LocalGroup::Create(2);
  Layers net(2);
  const auto strategy = CreateFsdp(net.Parameters(), {}, &net, ranks[0].get(), {});
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  ranks[1].reset();
  const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
  (*strategy)->BeginStep(17, 2.0);
  (*strategy)->BeginMicroBatch(true);
  try {
    context->Call(net, Numbers({5, Layers::kWidth}, 1));
    FAIL() << "a forward without parameters";
  } catch (const models::ContextError& error) {
    EXPECT_NE(std::string(error.status().message())
                  .find("'parameters of the root' at step 17: rank 1 is gone"),
              std::string::npos)
        << error.status();
  }
}

TEST(Fsdp, APeerThatGoesInBackwardFailsItByTheSameError) {
  auto ranks = comm::LocalGroup::Create(2);
  std::thread other([&] {  // takes part in the forward alone
    Layers net(2);
    const auto strategy = CreateFsdp(net.Parameters(), {}, &net, ranks[1].get(), {});
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
    (*strategy)->BeginStep(17, 2.0);
    (*strategy)->BeginMicroBatch(true);
    context->Call(net, Numbers({5, Layers::kWidth}, 1));
  });
  Layers net(2);
  const auto strategy = CreateFsdp(net.Parameters(), {}, &net, ranks[0].get(), {});
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
  (*strategy)->BeginStep(17, 2.0);
  (*strategy)->BeginMicroBatch(true);
  const at::Tensor loss = context->Call(net, Numbers({5, Layers::kWidth}, 1)).square().mean();
  other.join();
  ranks[1].reset();
  try {
    loss.backward();
    FAIL() << "a backward without parameters";
  } catch (const models::ContextError& error) {
    EXPECT_NE(
        std::string(error.status().message()).find("'parameters of unit 'layers.1'' at step 17"),
        std::string::npos)
        << error.status();
  }
}

}  // namespace
}  // namespace muster::parallel
