// Passes of forwards without backwards (ParameterStore::BeginPass): what is gathered and how often,
// and the state after a pass.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "c10/core/GradMode.h"
#include "gtest/gtest.h"
#include "worker/models/seed.h"
#include "worker/parallel/fsdp/fsdp.h"
#include "worker/parallel/fsdp/layers.h"
#include "worker/parallel/fsdp/layers_training.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {
namespace {

constexpr int kDepth = 4;

struct Seen {
  std::vector<std::string> events;
  int64_t bytes_before = 0;  // bytes of whole units
  int64_t bytes_in_pass = 0;
  int64_t bytes_after = 0;
  std::vector<at::Tensor> outputs;  // of the pass
  at::Tensor next;                  // the loss of the step after the pass

  int64_t Count(const std::string& event) const {
    return std::count(events.begin(), events.end(), event);
  }
};

std::string Text(const UnitEvent& event) {
  const std::string unit =
      event.unit.empty() ? "root" : event.unit.substr(event.unit.rfind('.') + 1);
  if (event.kind == UnitEvent::Kind::kGather) return "gather " + unit;
  return event.kind == UnitEvent::Kind::kFree ? "free " + unit : "";
}

struct Pass {
  PassMemory memory = PassMemory::kUnits;
  bool none = false;     // whether there is no pass at all
  bool doubles = false;  // whether the pass doubles the parameters
  bool resident = false;
  int steps = 1;  // before the pass
};

// Returns what rank 0 of two observes in a pass of three forwards.
Seen SeenIn(const Pass& pass) {
  Seen seen;
  const Setting setting{.frozen = "EveryOther"};
  RunRanks(setting.world_size, [&](comm::Communicator& ranks) {
    Layers net(kDepth);
    Freeze(net, kFrozen.at(setting.frozen));
    const bool first = ranks.rank() == 0;
    int64_t bytes = 0;
    bool on = false;
    FsdpOptions options{.frozen_resident = pass.resident};
    if (first) {
      options.trace = [&](const UnitEvent& event) {
        bytes = event.whole_bytes;
        if (const std::string text = Text(event); on && !text.empty()) seen.events.push_back(text);
      };
    }
    const auto strategy = CreateFsdp(net.Parameters(), {}, &net, &ranks, options);
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
    for (int64_t step = 0; step < pass.steps; ++step) {
      TrainStep(**strategy, *context, net, setting, ranks.rank(), step);
    }
    double factor = 2;
    const auto exchange = [&] {
      for (const Piece& piece : (*strategy)->store().shards()->held) {
        const c10::NoGradGuard no_grad;
        piece.tensor.detach().mul_(factor);  // exact
      }
      factor = 1 / factor;
    };
    if (first) seen.bytes_before = bytes;
    on = true;
    if (!pass.none) {
      ASSERT_TRUE((*strategy)
                      ->store()
                      .BeginPass(pass.memory, pass.doubles ? exchange : std::function<void()>())
                      .ok());
      const c10::NoGradGuard no_grad;
      for (int i = 0; i < 3; ++i) {
        const at::Tensor y = context->Call(net, Numbers({5, Layers::kWidth}, 50 + i));
        if (first) seen.outputs.push_back(y.clone());
      }
      if (first) seen.bytes_in_pass = bytes;
      ASSERT_TRUE((*strategy)->store().EndPass().ok());
    }
    on = false;
    if (first) seen.bytes_after = bytes;
    (*strategy)->BeginStep({pass.steps, 2.0});
    (*strategy)->BeginMicroBatch(true);
    const at::Tensor loss = LossOf(net, *context, ranks.rank(), pass.steps, 0, false);
    loss.backward();
    ASSERT_TRUE((*strategy)->FinishBackward().ok());
    if (first) seen.next = loss.detach().clone();
  });
  return seen;
}

TEST(FsdpPass, AWholePassGathersEachUnitOnceAndFreesItAtTheEnd) {
  const Seen seen = SeenIn({.memory = PassMemory::kWhole});
  for (const char* unit : {"1", "2", "3"}) {
    EXPECT_EQ(seen.Count(std::string("gather ") + unit), 1) << unit;
    EXPECT_EQ(seen.Count(std::string("free ") + unit), 1) << unit;
  }
  // The root and unit 0 were gathered for the next step.
  EXPECT_EQ(seen.Count("gather root") + seen.Count("gather 0"), 0);
  EXPECT_EQ(seen.Count("free root") + seen.Count("free 0"), 0);
  EXPECT_GT(seen.bytes_in_pass, seen.bytes_before);
  EXPECT_EQ(seen.bytes_after, seen.bytes_before);
}

TEST(FsdpPass, APassByUnitsGathersThemForEachForward) {
  const Seen seen = SeenIn({.memory = PassMemory::kUnits});
  for (const char* unit : {"1", "2", "3"}) {
    EXPECT_EQ(seen.Count(std::string("gather ") + unit), 3) << unit;
  }
  EXPECT_EQ(seen.bytes_after, seen.bytes_before) << "the first unit is there for the next step";
}

TEST(FsdpPass, BeforeTheFirstStepNothingIsLeftOfIt) {
  for (const PassMemory memory : {PassMemory::kWhole, PassMemory::kUnits}) {
    const Seen seen = SeenIn({.memory = memory, .steps = 0});
    EXPECT_EQ(seen.bytes_before, 0);
    EXPECT_EQ(seen.bytes_after, 0);
  }
}

TEST(FsdpPass, ResultsAndTheNextStepAreBitwiseTheSameInAll) {
  for (const bool doubles : {false, true}) {
    std::vector<Seen> all;
    for (const bool resident : {false, true}) {
      for (const PassMemory memory : {PassMemory::kWhole, PassMemory::kUnits}) {
        all.push_back(SeenIn({.memory = memory, .doubles = doubles, .resident = resident}));
      }
    }
    const Seen without = SeenIn({.none = true});
    for (const Seen& seen : all) {
      EXPECT_TRUE(SameBits(seen.next, without.next)) << "the pass changed training";
      EXPECT_EQ(seen.bytes_after, seen.bytes_before);
      for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(SameBits(seen.outputs[i], all[0].outputs[i]));
    }
  }
}

TEST(FsdpPass, ItsForwardsUseTheChangedValues) {
  Layers plain(kDepth);
  const Setting setting{.frozen = "EveryOther"};
  Freeze(plain, kFrozen.at(setting.frozen));
  ReferenceStep(plain, setting, 0);
  const c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : plain.Parameters()) tensor.detach().mul_(2);
  models::ForwardContext plainly(models::Mode::kTrain, models::MakeGenerator(1));
  for (const PassMemory memory : {PassMemory::kWhole, PassMemory::kUnits}) {
    for (const bool resident : {false, true}) {
      const Seen seen = SeenIn({.memory = memory, .doubles = true, .resident = resident});
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(
            SameBits(seen.outputs[i], plainly.Call(plain, Numbers({5, Layers::kWidth}, 50 + i))));
      }
    }
  }
}

}  // namespace
}  // namespace muster::parallel
