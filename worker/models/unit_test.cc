#include "worker/models/unit.h"

#include <memory>
#include <string>
#include <vector>

#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "gtest/gtest.h"
#include "worker/models/recording_context.h"
#include "worker/models/seed.h"

namespace muster::models {
namespace {

// y = x + weight. A buffer counts the forwards.
class Leaf : public Unit {
 public:
  explicit Leaf(const std::string& name) : Unit(name) {
    AddParameter(name + ".weight", at::ones({2}));
    AddBuffer(name + ".forwards", at::zeros({}, at::kLong));
  }

  at::Tensor Forward(const at::Tensor& x, ForwardContext& context) override {
    if (context.training()) buffer(0).add_(1);
    return x + parameter(0);
  }
};

// A unit with its own parameters and buffers before, between and after the children.
class Tree : public Unit {
 public:
  Tree() : Unit("tree") {
    AddParameter("first", at::ones({2}));
    AddChild(std::make_unique<Leaf>("a"));
    AddBuffer("mean", at::zeros({2}));
    AddParameter("between", at::ones({2}));
    AddChild(std::make_unique<Leaf>("b"));
    AddParameter("last", at::ones({2}));
  }

  at::Tensor Forward(const at::Tensor& x, ForwardContext& context) override {
    at::Tensor y = x;
    for (const auto& child : children()) y = context.Call(*child, y);
    return y;
  }
};

template <typename Named>
std::vector<std::string> Names(const std::vector<Named>& all) {
  std::vector<std::string> names;
  for (const auto& one : all) names.push_back(one.name);
  return names;
}

TEST(UnitTest, ParametersComeInTheOrderOfRegistrationThroughChildren) {
  const Tree tree;
  EXPECT_EQ(Names(tree.Parameters()),
            (std::vector<std::string>{"first", "a.weight", "between", "b.weight", "last"}));
  EXPECT_EQ(Names(tree.own_parameters()), (std::vector<std::string>{"first", "between", "last"}));
  for (const Parameter& parameter : tree.Parameters()) {
    EXPECT_TRUE(parameter.tensor.requires_grad() && parameter.tensor.is_leaf()) << parameter.name;
  }
}

TEST(UnitTest, BuffersAreAUnitsOwnAndThenItsChildren) {
  const Tree tree;
  EXPECT_EQ(Names(tree.Buffers()), (std::vector<std::string>{"mean", "a.forwards", "b.forwards"}));
  EXPECT_EQ(Names(tree.own_buffers()), std::vector<std::string>{"mean"});
  for (const Buffer& buffer : tree.Buffers()) EXPECT_FALSE(buffer.tensor.requires_grad());
}

TEST(UnitTest, CopiesShareTheTensors) {
  Tree tree;
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  const auto buffers = tree.Buffers();
  context.Call(tree, at::zeros({2}));
  context.set_mode(Mode::kEvaluate);
  context.Call(tree, at::zeros({2}));
  EXPECT_EQ(buffers[1].tensor.item<int64_t>(), 1);
  tree.Parameters()[1].tensor.detach().fill_(5);
  EXPECT_EQ(context.Call(tree, at::zeros({2}))[0].item<float>(), 6);
}

TEST(UnitTest, AReplacedParameterIsReadByTheNextForward) {
  Tree tree;
  ForwardContext context(Mode::kEvaluate, MakeGenerator(0));
  tree.children()[1]->ReplaceParameter(0, at::ones({2}).mul_(10));
  EXPECT_EQ(context.Call(tree, at::zeros({2}))[1].item<float>(), 11);
  EXPECT_EQ(tree.Parameters()[3].tensor[0].item<float>(), 10);
  EXPECT_EQ(tree.Parameters()[3].name, "b.weight");
}

TEST(UnitTest, EveryCallComesThroughTheContext) {
  Tree tree;
  RecordingContext context(Mode::kEvaluate, MakeGenerator(0));
  context.Call(tree, at::zeros({2}));
  EXPECT_EQ(context.calls, (std::vector<std::string>{"tree", "a", "b"}));
}

// A unit that returns the sum and the difference of two inputs.
class TwoOfEach : public Unit {
 public:
  TwoOfEach() : Unit("two") {}
  Tensors ForwardMany(const Tensors& inputs, ForwardContext&) override {
    return {inputs.at(0) + inputs.at(1), inputs.at(0) - inputs.at(1)};
  }
};

TEST(UnitTest, SeveralTensorsGoInAndComeOut) {
  TwoOfEach unit;
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  const Tensors found = context.CallMany(unit, {at::ones({2}), at::zeros({2})});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_TRUE(found[0].equal(at::ones({2})) && found[1].equal(at::ones({2})));
  Leaf leaf("a");
  EXPECT_TRUE(context.CallMany(leaf, {at::zeros({2})}).at(0).equal(at::ones({2})));
}

template <typename Body>
std::string ModelErrorOf(Body&& body) {
  try {
    body();
  } catch (const ModelError& error) {
    return error.what();
  }
  return "no ModelError";
}

TEST(UnitTest, AnotherNumberOfTensorsIsAnErrorWithTheNameOfTheUnit) {
  // A unit with one input only.
  Leaf one("a");
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  const at::Tensor x = at::zeros({2});
  EXPECT_EQ(ModelErrorOf([&] { context.CallMany(one, {x, x}); }),
            "unit 'a': expected one input, found 2");
  // A unit without any forward.
  class None : public Unit {
   public:
    None() : Unit("none") {}
  };
  None none;
  EXPECT_EQ(ModelErrorOf([&] { context.Call(none, x); }),
            "unit 'none' has no Forward with one input");
  class Doubles : public TwoOfEach {
   public:
    Tensors ForwardMany(const Tensors& inputs, ForwardContext& context) override {
      return TwoOfEach::ForwardMany({inputs[0], inputs[0]}, context);
    }
  };
  Doubles doubles;
  EXPECT_EQ(ModelErrorOf([&] { context.Call(doubles, x); }),
            "unit 'two': expected one output for Call, found 2; CallMany takes them");
}

TEST(UnitTest, WhatIsInsideOfARecomputedUnitIsRepeatedToo) {
  Tree tree;
  Leaf other("c");
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  EXPECT_FALSE(context.recomputes(tree));
  context.Recompute({&tree});
  EXPECT_TRUE(context.recomputes(tree) && context.recomputes(*tree.children()[1]));
  EXPECT_FALSE(context.recomputes(other));
  context.Recompute({tree.children()[0].get()});
  EXPECT_FALSE(context.recomputes(tree) || context.recomputes(*tree.children()[1]));
  EXPECT_TRUE(context.recomputes(*tree.children()[0]));
}

}  // namespace
}  // namespace muster::models
