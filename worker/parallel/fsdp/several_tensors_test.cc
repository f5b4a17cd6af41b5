// Units with several inputs and outputs.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "gtest/gtest.h"
#include "worker/models/seed.h"
#include "worker/parallel/fsdp/fsdp.h"
#include "worker/parallel/fsdp/layers.h"
#include "worker/parallel/fsdp/plain_training.h"
#include "worker/parallel/test_model.h"

namespace muster::parallel {
namespace {

constexpr int kDepth = 5;
constexpr int64_t kWidth = Layers::kWidth;

// A unit with several tensors. Inputs: numbers, a mask without gradient, and numbers of an earlier
// unit. Outputs: numbers, and a loss of this unit.
class Mixing : public models::Unit {
 public:
  Mixing(const std::string& name, uint64_t seed) : Unit(name) {
    AddParameter(name + ".weight", Numbers({kWidth, kWidth}, seed));
    AddParameter(name + ".skip", Numbers({kWidth, kWidth}, seed + 100));
  }
  models::Tensors ForwardMany(const models::Tensors& inputs, models::ForwardContext&) override {
    const at::Tensor y = at::linear(inputs[0], parameter(0)).tanh() * inputs[1] +
                         at::linear(inputs[2], parameter(1));
    return {y, y.abs().mean() + parameter(1).square().sum()};
  }
};

class Net : public models::Unit {
 public:
  Net() : Unit("") {
    for (int i = 0; i < kDepth; ++i) {
      AddChild(std::make_unique<Mixing>("layers." + std::to_string(i), 10 * i + 1));
    }
  }
  // Returns the numbers of the last unit, and the losses of all units.
  models::Tensors ForwardMany(const models::Tensors& inputs,
                              models::ForwardContext& context) override {
    at::Tensor mask = at::ones({kWidth});
    mask.narrow(0, 2, 3).zero_();
    models::Tensors outputs = {inputs[0]};
    at::Tensor before = inputs[0];
    for (const auto& child : children()) {
      const models::Tensors found = context.CallMany(*child, {outputs[0], mask, before});
      before = outputs[0];
      outputs[0] = found[0];
      outputs.push_back(found[1]);
    }
    return outputs;
  }
};

// The outputs of the net that the loss uses.
enum class Used { kNumbers, kLosses, kAll, kOneLoss };

at::Tensor LossOf(Used used, Net& net, models::ForwardContext& context, int rank, int64_t step) {
  models::Tensors outputs = context.CallMany(net, {Numbers({5, kWidth}, 100 * step + rank)});
  // Rank 1 uses the losses of other units than rank 0.
  if (used == Used::kOneLoss) return outputs[rank == 0 ? 2 : 4] + outputs[kDepth];
  at::Tensor loss = outputs[0].square().mean();
  if (used == Used::kNumbers) return loss;
  if (used == Used::kLosses) loss = outputs[1];
  for (size_t i = 1; i < outputs.size(); ++i) loss = loss + outputs[i];
  return loss;
}

void Train(Used used, bool recompute, FsdpOptions options) {
  ExpectPlainTraining<Net>([used](Net& net, models::ForwardContext& context, int rank,
                                  int64_t step) { return LossOf(used, net, context, rank, step); },
                           recompute, options);
}

TEST(FsdpSeveralTensors, TrainAsWithoutAStrategyWhateverOutputsTheLossUses) {
  for (const Used used : {Used::kNumbers, Used::kLosses, Used::kAll, Used::kOneLoss}) {
    for (const bool recompute : {false, true}) {
      for (const bool reshard : {true, false}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(used) << recompute << reshard);
        Train(used, recompute, {.reshard_after_forward = reshard});
      }
    }
  }
}

TEST(FsdpSeveralTensors, AUnitIsGatheredOnceForABackwardThatEntersThroughBothOutputs) {
  std::vector<std::string> events;
  Train(Used::kAll, /*recompute=*/false, {.trace = [&](const UnitEvent& event) {
          if (event.unit != "layers.2") return;
          constexpr const char* kKinds[] = {"gather", "free", "forward", "before", "after"};
          events.push_back(kKinds[static_cast<int>(event.kind)]);
        }});
  std::vector<std::string> expected;
  for (int step = 0; step < 3; ++step) {
    for (const char* event : {"gather", "forward", "free", "gather", "before", "after", "free"}) {
      expected.push_back(event);
    }
  }
  EXPECT_EQ(events, expected);
}

// A unit that returns its parameter beside its output.
class Telling : public models::Unit {
 public:
  Telling() : Unit("layers.0") { AddParameter("layers.0.weight", Numbers({kWidth, kWidth}, 1)); }
  models::Tensors ForwardMany(const models::Tensors& inputs, models::ForwardContext&) override {
    return {at::linear(inputs[0], parameter(0)), parameter(0)};
  }
};

class TellingNet : public models::Unit {
 public:
  TellingNet() : Unit("") { AddChild(std::make_unique<Telling>()); }
  at::Tensor Forward(const at::Tensor& x, models::ForwardContext& context) override {
    return context.CallMany(*children()[0], {x})[0];
  }
};

TEST(FsdpSeveralTensors, AUnitThatReturnsAParameterIsRefusedByName) {
  RunRanks(2, [](comm::Communicator& ranks) {
    TellingNet net;
    const auto strategy = CreateFsdp(net.Parameters(), {}, &net, &ranks, {});
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    const auto context = (*strategy)->MakeContext(models::Mode::kTrain, models::MakeGenerator(1));
    (*strategy)->BeginStep({0, 2.0});
    (*strategy)->BeginMicroBatch(true);
    try {
      context->Call(net, Numbers({5, kWidth}, ranks.rank()));
      FAIL() << "a parameter whose memory is freed";
    } catch (const models::ModelError& error) {
      EXPECT_EQ(std::string(error.what()),
                "unit 'layers.0' returns a parameter: its memory is freed after the forward; "
                "return a copy");
    }
  });
}

}  // namespace
}  // namespace muster::parallel
