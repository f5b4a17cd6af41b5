// The times when units are gathered and freed, and the errors if they do not arrive.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "c10/core/GradMode.h"
#include "gtest/gtest.h"
#include "worker/comm/local/local_group.h"
#include "worker/models/seed.h"
#include "worker/models/unit.h"
#include "worker/parallel/fsdp/fsdp.h"
#include "worker/parallel/fsdp/layers.h"
#include "worker/parallel/fsdp/layers_training.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {
namespace {

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
    if (setting.recompute) Recompute(net, context.get());
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

// Layers 1 and 3 are frozen. One unit is gathered ahead. After the update, the root and the first
// unit are gathered for the next step. The unit whose input requires no gradient is freed only at
// the end of backward.
TEST(FsdpUnits, AFrozenUnitIsFreedBeforeTheBackwardOfTheOneBeforeItBegins) {
  EXPECT_EQ(Texts(TraceOfTheSecondStep(4, {.frozen = "EveryOther"})),
            (std::vector<std::string>{"forward root",
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
                                      "free 0",
                                      "gather root",
                                      "gather 0"}));
}

TEST(FsdpUnits, BetweenMicroBatchesTheFirstUnitStaysForTheNextForward) {
  const auto texts = Texts(TraceOfTheSecondStep(3, {.micro_batches = 3}));
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "gather root"), 1);
  // Gathered before each backward, and for the next step.
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "gather 0"), 4);
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "gather 1"), 6);
}

TEST(FsdpUnits, AUnitWhoseOutputNeedsNoGradientIsNotGatheredInBackward) {
  const auto texts = Texts(TraceOfTheSecondStep(3, {.frozen = "First"}));
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "gather 0"), 1);
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "gather 1"), 2);
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "before backward 0"), 0);
}

// Partly frozen units are gathered and freed as a whole, and recomputation changes no event.
TEST(FsdpUnits, PartlyFrozenUnitsAndRecomputationKeepTheOrder) {
  const auto whole = TraceOfTheSecondStep(4, {});
  EXPECT_EQ(Texts(TraceOfTheSecondStep(4, {.frozen = "Parts"})), Texts(whole));
  const auto recomputed = TraceOfTheSecondStep(4, {.recompute = true});
  EXPECT_EQ(recomputed, whole);
  // The last two events are gathers of the root and the first unit, for the next step.
  const int64_t root = whole[whole.size() - 2].whole_bytes;
  const int64_t unit = whole.back().whole_bytes - root;
  int64_t most = 0;
  for (const UnitEvent& event : whole) most = std::max(most, event.whole_bytes);
  EXPECT_EQ(most, root + 2 * unit);  // the unit that runs and the next one
}

// In backward each unit is freed when its gradients are complete, so the memory of whole units
// falls with each unit.
TEST(FsdpUnits, WithoutReshardingAfterForwardUnitsAreGatheredOnceAndFreedOneByOne) {
  const std::vector<std::string> expected = {"forward root",      "gather 1",         "forward 0",
                                             "gather 2",          "forward 1",        "gather 3",
                                             "forward 2",         "forward 3",

                                             "before backward 3", "after backward 3", "free 3",
                                             "before backward 2", "after backward 2", "free 2",
                                             "before backward 1", "after backward 1", "free 1",
                                             "before backward 0", "free root",        "free 0",
                                             "gather root",       "gather 0"};
  for (const char* frozen : {"None", "Parts", "EveryOther"}) {
    for (const bool recompute : {false, true}) {
      const auto events = TraceOfTheSecondStep(
          4, {.frozen = frozen, .reshard_after_forward = false, .recompute = recompute});
      EXPECT_EQ(Texts(events), expected) << frozen << recompute;
      int64_t before = INT64_MAX;
      for (const UnitEvent& event : events) {
        if (event.kind != UnitEvent::Kind::kAfterBackward) continue;
        EXPECT_LT(event.whole_bytes, before);
        before = event.whole_bytes;
      }
    }
  }
}

// A forward gathers ahead the unit that came next in the forward before. A forward that ends early
// therefore leaves a unit gathered. After an update this unit has old values and must not be used.
TEST(FsdpUnits, WhatAnEvaluationGatheredAheadIsNotUsedAfterTheUpdate) {
  const Setting setting;
  RunRanks(setting.world_size, [&](comm::Communicator& ranks) {
    Layers net(4), plain(4);
    std::vector<std::string> events;
    const auto strategy =
        CreateFsdp(net.Parameters(), {}, &net, &ranks,
                   {.trace = [&](const UnitEvent& event) { events.push_back(Text(event)); }});
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
    (*strategy)->BeginStep({0, static_cast<double>(setting.world_size)});
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

TEST(FsdpUnits, APeerThatIsGoneFailsTheForwardNamingUnitAndStep) {
  auto ranks = comm::LocalGroup::Create(2);
  Layers net(2);
  const auto strategy = CreateFsdp(net.Parameters(), {}, &net, ranks[0].get(), {});
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  ranks[1].reset();
  const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
  (*strategy)->BeginStep({17, 2.0});
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

TEST(FsdpUnits, AGatherOfParametersThatFailedChangesNoValue) {
  auto ranks = comm::LocalGroup::Create(2);
  Layers net(2);
  const auto strategy = CreateFsdp(net.Parameters(), {}, &net, ranks[0].get(), {});
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  const std::vector<Piece>& pieces = (*strategy)->pieces();
  std::vector<at::Tensor> before;
  for (const Piece& piece : pieces) before.push_back(piece.tensor.detach().clone());
  ranks[1].reset();
  EXPECT_FALSE((*strategy)->store().Gather(AllOf(net)).ok());
  (*strategy)->store().Release();
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_TRUE(SameBits(pieces[i].tensor.detach(), before[i])) << i;
  }
}

TEST(FsdpUnits, APeerThatGoesInBackwardFailsItByTheSameError) {
  auto ranks = comm::LocalGroup::Create(2);
  std::thread other([&] {  // this rank takes part only in the forward
    Layers net(2);
    const auto strategy = CreateFsdp(net.Parameters(), {}, &net, ranks[1].get(), {});
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
    (*strategy)->BeginStep({17, 2.0});
    (*strategy)->BeginMicroBatch(true);
    context->Call(net, Numbers({5, Layers::kWidth}, 1));
  });
  Layers net(2);
  const auto strategy = CreateFsdp(net.Parameters(), {}, &net, ranks[0].get(), {});
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
  (*strategy)->BeginStep({17, 2.0});
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
