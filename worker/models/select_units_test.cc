#include "worker/models/select_units.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/ones.h"
#include "gtest/gtest.h"

namespace muster::models {
namespace {

class Node : public Unit {
 public:
  Node(const std::string& name, bool parameter) : Unit(name) {
    if (parameter) AddParameter(name + ".weight", at::ones({1}));
  }
  Node& Child(const std::string& name, bool parameter = true) {
    return static_cast<Node&>(AddChild(std::make_unique<Node>(name, parameter)));
  }
  at::Tensor Forward(const at::Tensor& x, ForwardContext&) override { return x; }
};

// Returns an embedding, two blocks with numbered parts, an activation without parameters, and a
// head.
std::unique_ptr<Node> Tree() {
  auto root = std::make_unique<Node>("", true);
  root->Child("wte");
  Node& blocks = root->Child("h", false);
  for (const char* block : {"h.0", "h.1"}) {
    Node& one = blocks.Child(block, false);
    one.Child(std::string(block) + ".mlp").Child(std::string(block) + ".mlp.0");
  }
  root->Child("act.7", false);
  root->Child("head");
  return root;
}

std::vector<std::string> Selected(const Unit& root, const std::vector<std::string>& patterns) {
  const auto units = SelectUnits(root, patterns);
  EXPECT_TRUE(units.ok()) << units.status();
  std::vector<std::string> names;
  if (units.ok()) {
    for (const Unit* unit : *units) names.push_back(unit->name());
  }
  return names;
}

TEST(SelectUnits, WithoutPatternsTheBlocks) {
  const auto tree = Tree();
  EXPECT_EQ(Selected(*tree, {}), (std::vector<std::string>{"h.0", "h.1"}));
}

TEST(SelectUnits, PatternsMayNameUnitsWithinEachOtherInForwardOrder) {
  const auto tree = Tree();
  EXPECT_EQ(Selected(*tree, {"head", "h.1*", "wte"}),
            (std::vector<std::string>{"wte", "h.1", "h.1.mlp", "h.1.mlp.0", "head"}));
}

TEST(SelectUnits, PatternsThatFitNoUnitWithParametersAreNamed) {
  const auto tree = Tree();
  EXPECT_EQ(SelectUnits(*tree, {"h.*", "act.*", "hed"}).status(),
            absl::InvalidArgumentError("no unit with parameters has a name that matches "
                                       "'act.*', 'hed'; units: "
                                       "wte, h, h.0 and 6 more"));
}

TEST(SelectUnits, AUnitOfTheNameBlockIsNoBlock) {
  Node root("", true);
  root.Child("block").Child("block.0");
  EXPECT_EQ(Selected(root, {"block"}), std::vector<std::string>{"block.0"});
}

TEST(SelectUnits, BlocksMayBeNamedBesidePatterns) {
  const auto tree = Tree();
  EXPECT_EQ(Selected(*tree, {"head", "block", "wte"}),
            (std::vector<std::string>{"wte", "h.0", "h.1", "head"}));
}

}  // namespace
}  // namespace muster::models
