#include "worker/models/recompute.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/ops/allclose.h"
#include "ATen/ops/empty_like.h"
#include "ATen/ops/item.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "c10/core/GradMode.h"
#include "gtest/gtest.h"
#include "worker/models/init.h"
#include "worker/models/seed.h"

namespace muster::models {
namespace {

// A layer with all state that a forward may depend on: parameters, the generator, the mode, and
// buffers that it changes.
class Layer : public Unit {
 public:
  explicit Layer(const std::string& name) : Unit(name) {
    AddParameter(name + ".weight", NormalInit(1, name, {5, 5}, 0.5));
    AddParameter(name + ".bias", NormalInit(1, name + "b", {5}, 0.5));
    AddBuffer(name + ".mean", at::zeros({5}));
    AddBuffer(name + ".forwards", at::zeros({}, at::TensorOptions(at::kLong)));
  }
  at::Tensor Forward(const at::Tensor& x, ForwardContext& context) override {
    ++runs;
    const at::Tensor y = at::linear(x, parameter(0), parameter(1)).tanh();
    if (!context.training()) return y;
    at::Tensor keep;
    {
      const c10::NoGradGuard no_grad;
      at::Tensor(buffer(0)).mul_(0.5).add_(y.detach().mean(0));
      at::Tensor(buffer(1)).add_(1);
      keep = at::empty_like(y.detach()).bernoulli_(0.5, context.generator());
    }
    return y * keep * static_cast<double>(buffer(1).item<int64_t>());
  }
  int runs = 0;
};

// Three layers. With `twice`, the middle layer runs twice.
class Root : public Unit {
 public:
  explicit Root(bool twice) : Unit(""), twice_(twice) {
    for (const char* name : {"a", "b", "c"}) AddChild(std::make_unique<Layer>(name));
  }
  at::Tensor Forward(const at::Tensor& x, ForwardContext& context) override {
    at::Tensor h = context.Call(*children()[0], x);
    h = context.Call(*children()[1], h);
    if (twice_) h = context.Call(*children()[1], h);
    return context.Call(*children()[2], h);
  }
  Layer& layer(size_t i) { return static_cast<Layer&>(*children()[i]); }

 private:
  const bool twice_;
};

struct Outcome {
  std::vector<at::Tensor> values;  // output, gradients, buffers, the generator's next number
  std::vector<int> runs;
};

Outcome Backward(const std::vector<size_t>& recomputed, bool twice, bool input_requires_grad,
                 const std::vector<size_t>& frozen = {}) {
  Root root(twice);
  ForwardContext context(Mode::kTrain, MakeGenerator(7));
  std::vector<const Unit*> units;
  for (const size_t i : recomputed) units.push_back(root.children()[i].get());
  context.Recompute(units);
  for (const size_t i : frozen) {
    for (const Parameter& parameter : root.children()[i]->Parameters()) {
      at::Tensor(parameter.tensor).requires_grad_(false);
    }
  }
  at::Tensor x = NormalInit(2, "x", {3, 5}, 1);
  x.requires_grad_(input_requires_grad);
  const at::Tensor y = context.Call(root, x);
  // The mode changes between forward and backward.
  context.set_mode(Mode::kEvaluate);
  y.square().sum().backward();
  Outcome outcome{.values = {y.detach()}};
  if (input_requires_grad) outcome.values.push_back(x.grad());
  for (const Parameter& parameter : root.Parameters()) {
    if (parameter.tensor.requires_grad()) outcome.values.push_back(parameter.tensor.grad());
  }
  for (const Buffer& buffer : root.Buffers()) outcome.values.push_back(buffer.tensor);
  outcome.values.push_back(at::zeros({4}).bernoulli_(0.5, context.generator()));
  EXPECT_FALSE(context.training());
  for (size_t i = 0; i < 3; ++i) outcome.runs.push_back(root.layer(i).runs);
  return outcome;
}

void ExpectSame(const Outcome& found, const Outcome& expected) {
  ASSERT_EQ(found.values.size(), expected.values.size());
  for (size_t i = 0; i < found.values.size(); ++i) {
    ASSERT_TRUE(found.values[i].defined()) << i;
    EXPECT_TRUE(found.values[i].equal(expected.values[i])) << i;
  }
}

TEST(Recompute, ChangesNoBit) {
  for (const bool input_requires_grad : {false, true}) {
    const Outcome plain = Backward({}, false, input_requires_grad);
    EXPECT_EQ(plain.runs, (std::vector<int>{1, 1, 1}));
    const Outcome all = Backward({0, 1, 2}, false, input_requires_grad);
    EXPECT_EQ(all.runs, (std::vector<int>{2, 2, 2}));
    ExpectSame(all, plain);
    const Outcome one = Backward({1}, false, input_requires_grad);
    EXPECT_EQ(one.runs, (std::vector<int>{1, 2, 1}));
    ExpectSame(one, plain);
  }
}

TEST(Recompute, FrozenUnitsPassGradientsOn) {
  for (const std::vector<size_t>& frozen : {std::vector<size_t>{0}, {1}, {2}, {0, 2}}) {
    ExpectSame(Backward({0, 1, 2}, false, true, frozen), Backward({}, false, true, frozen));
    ExpectSame(Backward({0, 1, 2}, false, false, frozen), Backward({}, false, false, frozen));
  }
}

TEST(Recompute, WhatNeedsNoGradientIsNotRunAgain) {
  EXPECT_EQ(Backward({0, 1, 2}, false, false, {0}).runs, (std::vector<int>{1, 2, 2}));
}

TEST(Recompute, AUnitCalledTwiceIsRunAgainForEachCall) {
  const Outcome plain = Backward({}, true, true);
  const Outcome again = Backward({1}, true, true);
  EXPECT_EQ(again.runs, (std::vector<int>{1, 4, 1}));
  // The two gradients are added in another order, which makes no difference for two numbers.
  ExpectSame(again, plain);
}

TEST(Recompute, EvaluationRunsOnce) {
  Root root(false);
  ForwardContext context(Mode::kEvaluate, MakeGenerator(7));
  context.Recompute({root.children()[0].get(), root.children()[1].get()});
  context.Call(root, at::ones({3, 5})).sum().backward();
  EXPECT_EQ(root.layer(0).runs, 1);
  const c10::NoGradGuard no_grad;
  context.set_mode(Mode::kTrain);
  context.Call(root, at::ones({3, 5}));
  EXPECT_EQ(root.layer(0).runs, 2);
}

class Uses : public UseObserver {
 public:
  void Used(const Unit& unit, bool recomputed) override {
    uses.push_back(unit.name() + (recomputed ? " recomputed" : ""));
  }
  void BeforeRecomputation() override { uses.push_back("again"); }
  std::vector<std::string> uses;
};

TEST(Recompute, ObserversAreToldOfEachCallOnce) {
  Root root(true);
  ForwardContext context(Mode::kTrain, MakeGenerator(7));
  Uses uses;
  context.set_use_observer(&uses);
  context.Recompute({root.children()[1].get()});
  context.Call(root, at::ones({3, 5})).sum().backward();
  EXPECT_EQ(uses.uses, (std::vector<std::string>{"", "a", "b recomputed", "b recomputed", "c",
                                                 "again", "again"}));
}

// A unit with several tensors. Inputs: numbers, a mask, and numbers of an earlier unit. Outputs:
// numbers, and a loss of this unit.
class Mixing : public Unit {
 public:
  explicit Mixing(const std::string& name) : Unit(name) {
    AddParameter(name + ".weight", NormalInit(1, name, {5, 5}, 0.5));
  }
  Tensors ForwardMany(const Tensors& inputs, ForwardContext&) override {
    ++runs;
    const at::Tensor y = at::linear(inputs[0], parameter(0)).tanh() * inputs[1] + inputs[2];
    return {y, y.square().mean() + parameter(0).square().sum()};
  }
  int runs = 0;
};

// Returns the gradients of two units in a row. numbers, losses: the outputs that the loss uses.
std::vector<at::Tensor> GradientsOfTwo(bool recompute, bool numbers, bool losses) {
  Mixing first("first"), second("second");
  ForwardContext context(Mode::kTrain, MakeGenerator(7));
  if (recompute) context.Recompute({&first, &second});
  const at::Tensor x = NormalInit(2, "x", {3, 5}, 1).requires_grad_(true);
  at::Tensor mask = at::ones({5});
  mask.narrow(0, 1, 2).zero_();
  const Tensors one = context.CallMany(first, {x, mask, x});
  const Tensors two = context.CallMany(second, {one[0], mask, x});
  at::Tensor loss = at::zeros({});
  if (numbers) loss = loss + two[0].sum();
  if (losses) loss = loss + one[1] + two[1];
  loss.backward();
  EXPECT_EQ(first.runs, recompute ? 2 : 1);
  EXPECT_EQ(second.runs, recompute ? 2 : 1);
  EXPECT_FALSE(mask.grad().defined());
  return {x.grad(), first.own_parameters()[0].tensor.grad(),
          second.own_parameters()[0].tensor.grad()};
}

// The tolerance is 1e-6, because x gets three gradients, which recomputation adds in another order.
TEST(Recompute, UnitsWithSeveralTensorsGetTheirGradients) {
  for (const auto& [numbers, losses] :
       std::vector<std::pair<bool, bool>>{{true, true}, {true, false}, {false, true}}) {
    const auto plain = GradientsOfTwo(false, numbers, losses);
    const auto found = GradientsOfTwo(true, numbers, losses);
    for (size_t i = 0; i < plain.size(); ++i) {
      EXPECT_TRUE(at::allclose(found[i], plain[i], 1e-6, 1e-6)) << i << numbers << losses;
    }
  }
}

// A unit that returns one more tensor in each forward.
class Growing : public Unit {
 public:
  Growing() : Unit("h.1") { AddParameter("w", at::ones({5})); }
  Tensors ForwardMany(const Tensors& inputs, ForwardContext&) override {
    return Tensors(++forwards_, inputs[0] * parameter(0));
  }

 private:
  size_t forwards_ = 0;
};

TEST(Recompute, AUnitThatReturnsAnotherNumberOfTensorsTheSecondTimeIsRefusedByName) {
  Growing unit;
  ForwardContext context(Mode::kTrain, MakeGenerator(7));
  context.Recompute({&unit});
  const at::Tensor y = context.Call(unit, at::ones({3, 5}));
  try {
    y.sum().backward();
    FAIL() << "a wrong gradient";
  } catch (const ModelError& error) {
    EXPECT_NE(std::string(error.what()).find("unit 'h.1' returns 2 tensors"), std::string::npos)
        << error.what();
  }
}

class InPlace : public Unit {
 public:
  InPlace() : Unit("h.0") { AddParameter("w", at::ones({5})); }
  at::Tensor Forward(const at::Tensor& x, ForwardContext&) override {
    return at::Tensor(x).mul_(2) * parameter(0);
  }
};

TEST(Recompute, AUnitThatChangesItsInputIsRefusedByName) {
  InPlace unit;
  ForwardContext context(Mode::kTrain, MakeGenerator(7));
  context.Recompute({&unit});
  try {
    context.Call(unit, at::ones({3, 5}));
    FAIL() << "a wrong gradient later";
  } catch (const ModelError& error) {
    EXPECT_NE(std::string(error.what()).find("unit 'h.0' changes its input in place"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace muster::models
