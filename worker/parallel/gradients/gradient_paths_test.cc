#include "worker/parallel/gradients/gradient_buckets.h"

#include <memory>
#include <vector>

#include "ATen/ops/ones.h"
#include "gtest/gtest.h"

namespace muster::parallel {
namespace {

class Node : public models::Unit {
 public:
  explicit Node(const at::Tensor& tensor) : Unit("") { AddParameter("w", tensor); }
  Node& Child(const at::Tensor& tensor) {
    return static_cast<Node&>(AddChild(std::make_unique<Node>(tensor)));
  }
  at::Tensor Forward(const at::Tensor& x, models::ForwardContext&) override { return x; }
};

at::Tensor Fresh() { return at::ones({1}).requires_grad_(true); }

class Counted : public testing::Test {
 protected:
  const std::vector<models::Parameter> parameters_ = {
      {"a", Fresh()}, {"b", Fresh()}, {"c", Fresh()}};
  std::vector<int> ways_ = {0, 0, 0};
  GradientPaths paths_{parameters_, [this](size_t parameter) { ++ways_[parameter]; }, [] {}};
};

TEST_F(Counted, CallsThatAreNotRecomputedAreOneWayTogether) {
  Node unit(parameters_[1].tensor);
  paths_.Used(unit, false);
  paths_.Used(unit, false);
  EXPECT_EQ(ways_, (std::vector<int>{0, 1, 0}));
  paths_.BeginPass();
  paths_.Used(unit, false);
  EXPECT_EQ(ways_, (std::vector<int>{0, 2, 0}));
}

TEST_F(Counted, EachRecomputedCallIsAWayToAllThatLiesBelow) {
  Node unit(parameters_[0].tensor);
  unit.Child(parameters_[1].tensor).Child(parameters_[2].tensor);
  paths_.Used(unit, true);
  paths_.Used(unit, true);
  EXPECT_EQ(ways_, (std::vector<int>{2, 2, 2}));
  paths_.Used(*unit.children()[0], false);
  EXPECT_EQ(ways_, (std::vector<int>{2, 3, 2}));
}

TEST_F(Counted, AParameterThatAUnitHasTwiceIsCountedOnceForACall) {
  Node unit(parameters_[0].tensor);
  unit.Child(parameters_[0].tensor);
  paths_.Used(unit, true);
  EXPECT_EQ(ways_, (std::vector<int>{1, 0, 0}));
}

TEST_F(Counted, FrozenParametersAreNobodys) {
  Node unit(at::ones({1}));
  paths_.Used(unit, true);
  paths_.Used(unit, false);
  EXPECT_EQ(ways_, (std::vector<int>{0, 0, 0}));
}

}  // namespace
}  // namespace muster::parallel
