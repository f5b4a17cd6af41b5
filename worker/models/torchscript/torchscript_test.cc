// Computation and training of models from TorchScript files.
#include "worker/models/torchscript/torchscript.h"

#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/full.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/csrc/jit/api/module.h"
#include "worker/models/seed.h"
#include "worker/models/torchscript/script_fixture.h"

namespace muster::models {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using torch::jit::Module;

std::vector<std::string> Names(const std::vector<Parameter>& parameters) {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters) names.push_back(parameter.name);
  return names;
}

TEST_F(TorchscriptTest, TheFilesParametersAreTheModels) {
  const Module module = Linear(kLinear);
  const auto model = *Make(module);
  ASSERT_THAT(Names(model->Parameters()), ElementsAre("weight"));
  const Parameter weight = model->Parameters()[0];
  EXPECT_TRUE(weight.tensor.is_leaf());
  EXPECT_TRUE(weight.tensor.requires_grad());
  EXPECT_TRUE(weight.tensor.equal(module.attr("weight").toTensor()));
  const at::Tensor logits = model->Logits(rows_, training_);
  EXPECT_TRUE(logits.equal(at::linear(rows_, weight.tensor)));
  logits.sum().backward();
  EXPECT_TRUE(weight.tensor.grad().defined());
}

TEST_F(TorchscriptTest, RowsComeInTheShapeOfInputs) {
  const auto model = Make(Linear("  return torch.linear(x.reshape([x.size(0), 3]), self.weight)\n"
                                 "  assert x.dim() == 3\n"),
                          {{"inputs", {1, 3}}, {"classes", 2}});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->Logits(rows_, training_).sizes(), (at::IntArrayRef{4, 2}));
  EXPECT_EQ((*model)->Input().row_elements, 3);
}

TEST_F(TorchscriptTest, AReplacedParameterIsTheOneThatIsUsed) {
  const auto model = *Make(Linear(kLinear));
  const at::Tensor replaced = at::ones({2, 3}).requires_grad_(true);
  model->root().ReplaceParameter(0, replaced);
  const at::Tensor logits = model->Logits(rows_, training_);
  EXPECT_TRUE(logits.equal(at::linear(rows_, replaced)));
  logits.sum().backward();
  EXPECT_TRUE(replaced.grad().defined());
}

TEST_F(TorchscriptTest, ASharedParameterIsOneAndStaysShared) {
  Module shared{c10::QualifiedName("__torch__.Shared")};
  const at::Tensor weight = at::randn({2, 3}, MakeGenerator(1)).requires_grad_(true);
  shared.register_parameter("weight", weight, false);
  shared.register_parameter("again", weight, false);
  shared.define(
      "def forward(self, x: Tensor):\n"
      "  return torch.linear(x, self.weight) + torch.linear(x, self.again)\n");
  const auto model = *Make(shared);
  ASSERT_THAT(Names(model->Parameters()), ElementsAre("weight"));
  model->Logits(rows_, training_).sum().backward();
  // The gradient contains both uses.
  const at::Tensor expected = rows_.sum(0).mul(2).expand({2, 3});
  EXPECT_TRUE(model->Parameters()[0].tensor.grad().allclose(expected));
  EXPECT_EQ(model->ResolveWeight("again").parameter, "weight");
}

Module Sequential(const std::vector<Module>& children, const std::string& forward,
                  const std::string& name = "__torch__.torch.nn.modules.container.Sequential") {
  Module top{c10::QualifiedName(name)};
  for (size_t i = 0; i < children.size(); ++i)
    top.register_module("c" + std::to_string(i), children[i]);
  top.define("def forward(self, x: Tensor):\n" + forward);
  return top;
}

class TorchscriptSequenceTest : public TorchscriptTest {
 protected:
  std::vector<Module> Two() {
    Module second{c10::QualifiedName("__torch__.N")};
    second.register_parameter("weight", at::randn({2, 2}, MakeGenerator(3)).requires_grad_(true),
                              false);
    second.define(std::string("def forward(self, x: Tensor):\n") + kLinear);
    return {Linear(kLinear), second};
  }
};

TEST_F(TorchscriptSequenceTest, TheChildrenOfASequentialAreItsUnits) {
  const auto model = *Make(Sequential(Two(), "  return self.c1.forward(self.c0.forward(x))\n"));
  ASSERT_EQ(model->root().children().size(), 2u);
  EXPECT_EQ(model->root().children()[1]->name(), "c1");
  EXPECT_THAT(Names(model->root().children()[1]->own_parameters()), ElementsAre("c1.weight"));
  EXPECT_THAT(Names(model->Parameters()), ElementsAre("c0.weight", "c1.weight"));
  const auto parameters = model->Parameters();
  EXPECT_TRUE(
      model->Logits(rows_, training_)
          .equal(at::linear(at::linear(rows_, parameters[0].tensor), parameters[1].tensor)));
}

TEST_F(TorchscriptSequenceTest, WhatIsNotExactlyTheirSequenceIsOneUnit) {
  const auto more =
      *Make(Sequential(Two(), "  return self.c1.forward(self.c0.forward(x)) + 1.0\n"));
  EXPECT_TRUE(more->root().children().empty());
  EXPECT_EQ(more->Parameters().size(), 2u);
  const auto other =
      *Make(Sequential(Two(), "  return self.c1.forward(self.c0.forward(x))\n", "__torch__.Mine"));
  EXPECT_TRUE(other->root().children().empty());
}

TEST_F(TorchscriptSequenceTest, ChildrenThatShareAParameterAreOneUnit) {
  std::vector<Module> children;
  const at::Tensor weight = at::randn({2, 2}, MakeGenerator(1)).requires_grad_(true);
  for (const char* name : {"__torch__.A", "__torch__.B"}) {
    Module child{c10::QualifiedName(name)};
    child.register_parameter("weight", weight, false);
    child.define(std::string("def forward(self, x: Tensor):\n") + kLinear);
    children.push_back(child);
  }
  const auto model = *Make(Sequential(children, "  return self.c1.forward(self.c0.forward(x))\n"),
                           {{"inputs", {2}}, {"classes", 2}});
  EXPECT_TRUE(model->root().children().empty());
  EXPECT_THAT(Names(model->Parameters()), ElementsAre("c0.weight"));
}

constexpr char kDropout[] =
    "  return torch.linear(torch.dropout(x, 0.5, self.training), self.weight)\n";

TEST_F(TorchscriptTest, TheModeIsTheContexts) {
  const auto model = *Make(WithMode(Linear(""), kDropout));
  const at::Tensor plain = at::linear(rows_, model->Parameters()[0].tensor);
  EXPECT_TRUE(model->Logits(rows_, evaluating_).equal(plain));
  EXPECT_FALSE(model->Logits(rows_, training_).equal(plain));
  EXPECT_TRUE(model->Logits(rows_, evaluating_).equal(plain));
}

TEST_F(TorchscriptTest, RandomnessComesFromTheRanksGeneratorAlone) {
  const auto model = *Make(WithMode(Linear(""), kDropout));
  at::Generator& generator = training_.generator();
  Reseed(generator, 5);
  const at::Tensor first = model->Logits(rows_, training_);
  const at::Tensor second = model->Logits(rows_, training_);
  EXPECT_FALSE(first.equal(second));
  at::randn({10});  // changes the process-wide generator, which must not matter
  Reseed(generator, 5);
  EXPECT_TRUE(model->Logits(rows_, training_).equal(first));
  EXPECT_TRUE(model->Logits(rows_, training_).equal(second));
  // Another rank has another seed.
  Reseed(generator, 6);
  EXPECT_FALSE(model->Logits(rows_, training_).equal(first));
}

TEST_F(TorchscriptTest, TheProcessWideGeneratorIsLeftAsItWas) {
  const auto model = *Make(WithMode(Linear(""), kDropout));
  const at::Generator process = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = process.get_state();
  model->Logits(rows_, training_);
  EXPECT_TRUE(process.get_state().equal(before));
}

TEST_F(TorchscriptTest, BuffersChangeInTrainingOnly) {
  for (const char* change : {"  if self.training:\n    self.seen.add_(1.0)\n",
                             "  if self.training:\n    self.seen = self.seen + 1.0\n"}) {
    const auto model = *Make(WithBuffer(at::zeros({2}), change));
    ASSERT_EQ(model->Buffers().size(), 1u) << change;
    const Buffer seen = model->Buffers()[0];
    EXPECT_EQ(seen.name, "seen");
    model->Logits(rows_, evaluating_);
    EXPECT_EQ(seen.tensor.sum().item<float>(), 0) << change;
    model->Logits(rows_, training_);
    model->Logits(rows_, training_);
    EXPECT_EQ(seen.tensor.sum().item<float>(), 4) << change;
    // The forward uses the value of a checkpoint.
    seen.tensor.fill_(10);
    model->Logits(rows_, training_);
    EXPECT_EQ(seen.tensor.sum().item<float>(), 22) << change;
  }
}

// Backward needs the values that forward read, not the values that forward assigned.
TEST_F(TorchscriptTest, ABufferThatIsReadAndThenAssignedHasTheRightGradient) {
  const auto model = *Make(WithBuffer(at::full({2}, 3.0),
                                      "  x = x.mul(self.seen[0])\n"
                                      "  if self.training:\n    self.seen = self.seen + 1.0\n"));
  const at::Tensor weight = model->Parameters()[0].tensor;
  for (const double before : {3.0, 4.0}) {
    weight.mutable_grad().reset();
    model->Logits(rows_.detach().requires_grad_(true), training_).sum().backward();
    EXPECT_TRUE(weight.grad().allclose(rows_.sum(0).mul(before).expand({2, 3}))) << before;
  }
  EXPECT_TRUE(model->Buffers()[0].tensor.equal(at::full({2}, 5.0)));
}

TEST_F(TorchscriptTest, ASharedBufferThatIsAssignedByOneNameIsTaken) {
  for (const char* assigned : {"seen", "again"}) {
    const at::Tensor buffer = at::zeros({2});
    Module module = Linear("");
    module.register_buffer("seen", buffer);
    module.register_buffer("again", buffer);
    module = WithMode(module, absl::StrCat("  if self.training:\n    self.", assigned,
                                           " = self.seen + 1.0\n", kLinear));
    const auto model = *Make(module);
    ASSERT_EQ(model->Buffers().size(), 1u);
    model->Logits(rows_, training_);
    model->Logits(rows_, training_);
    EXPECT_TRUE(model->Buffers()[0].tensor.equal(at::full({2}, 2.0))) << assigned;
  }
}

TEST_F(TorchscriptTest, BuffersOfOtherTypesAreConstantsAndMustStaySo) {
  const auto constant = *Make(WithBuffer(at::ones({1}, at::kBool), "  x = x * self.seen\n"));
  EXPECT_TRUE(constant->Buffers().empty());
  EXPECT_EQ(constant->ResolveWeight("seen").kind, WeightName::Kind::kIgnored);
  constant->Logits(rows_, training_);
  const auto changing = *Make(
      WithBuffer(at::ones({1}, at::kDouble), "  if self.training:\n    self.seen.add_(1.0)\n"));
  EXPECT_THAT([&] { changing->Logits(rows_, training_); },
              testing::ThrowsMessage<ModelError>(HasSubstr("'seen' was changed by forward")));
}

TEST_F(TorchscriptTest, WhatFailsOnlyInTrainingIsAModelErrorWithFileAndReason) {
  const auto model = *Make(
      WithMode(Linear(""), "  assert not self.training, \"no luck\"\n" + std::string(kLinear)));
  EXPECT_THAT(
      [&] { model->Logits(rows_, training_); },
      testing::ThrowsMessage<ModelError>(AllOf(HasSubstr(folder_.Path("model.pt") + ": forward: "),
                                               HasSubstr("no luck"), Not(HasSubstr("\n")))));
  model->Logits(rows_, evaluating_);
}

TEST_F(TorchscriptTest, TokensBecomeLogitsOfEach) {
  Module module{c10::QualifiedName("__torch__.M")};
  module.register_parameter("table", at::randn({5, 5}).requires_grad_(true), false);
  module.define("def forward(self, x: Tensor):\n  return torch.embedding(self.table, x)\n");
  const auto model = Make(module, {{"vocab_size", 5}, {"context", 3}});
  ASSERT_TRUE(model.ok()) << model.status();
  const at::Tensor tokens = at::zeros({2, 3}, at::kLong);
  EXPECT_EQ((*model)->Logits(tokens, training_).sizes(), (at::IntArrayRef{2, 3, 5}));
  EXPECT_EQ((*model)->Loss({tokens, tokens}, training_).terms, 6);
}

}  // namespace
}  // namespace muster::models
