// Scripts that are defined here and saved by LibTorch; tests/parity/torchscript_test.py has files
// that Python wrote.
#include "worker/models/torchscript/torchscript.h"

#include <fstream>
#include <iterator>
#include <string>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/full.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "common/files/temp_dir.h"
#include "common/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "torch/csrc/jit/api/module.h"
#include "worker/models/seed.h"
#include "worker/models/spec_from_json.h"

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

class TorchscriptTest : public ::testing::Test {
 protected:
  // A module of 3 numbers -> 2 classes with the parameter `weight`.
  static Module Linear(const std::string& forward, const std::string& name = "__torch__.M") {
    Module module{c10::QualifiedName(name)};
    module.register_parameter("weight", at::randn({2, 3}, MakeGenerator(1)).requires_grad_(true),
                              false);
    if (!forward.empty()) module.define("def forward(self, x: Tensor):\n" + forward);
    return module;
  }

  absl::StatusOr<std::unique_ptr<Model>> Make(const Module& module, nlohmann::json options = {}) {
    module.save(folder_.Path("model.pt"));
    return Open("model.pt", std::move(options));
  }
  absl::StatusOr<std::unique_ptr<Model>> Open(const std::string& name,
                                              nlohmann::json options = {}) {
    if (options.is_null()) options = {{"inputs", {3}}, {"classes", 2}};
    options["path"] = folder_.Path(name);
    return CreateFromJson("torchscript", options, 0);
  }
  std::string Error(const Module& module, nlohmann::json options = {}) {
    const auto model = Make(module, std::move(options));
    EXPECT_FALSE(model.ok());
    return Message(model.status());
  }

  files::TempDir folder_;
  ForwardContext training_{Mode::kTrain, MakeGenerator(7)};
  ForwardContext evaluating_{Mode::kEvaluate, MakeGenerator(7)};
  const at::Tensor rows_ = at::randn({4, 3}, MakeGenerator(2));
};

constexpr char kLinear[] = "  return torch.linear(x, self.weight)\n";

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
  // Both uses count.
  const at::Tensor expected = rows_.sum(0).mul(2).expand({2, 3});
  EXPECT_TRUE(model->Parameters()[0].tensor.grad().allclose(expected));
  EXPECT_EQ(model->ResolveWeight("again").parameter, "weight");
}

TEST_F(TorchscriptTest, PartsOfOneMemoryAreRefused) {
  Module module{c10::QualifiedName("__torch__.M")};
  const at::Tensor weight = at::randn({2, 2}, MakeGenerator(1));
  module.register_parameter("a", weight.detach().requires_grad_(true), false);
  module.register_parameter("b", weight.t().detach().requires_grad_(true), false);
  module.define(
      "def forward(self, x: Tensor):\n  return torch.linear(torch.linear(x, self.a), self.b)\n");
  EXPECT_THAT(Error(module, {{"inputs", {2}}, {"classes", 2}}),
              HasSubstr("'a' and 'b': parts of one memory"));
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

Module WithMode(Module module, const std::string& forward) {
  module.register_attribute("training", c10::BoolType::get(), true);
  module.define("def forward(self, x: Tensor):\n" + forward);
  return module;
}

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
  at::randn({10});  // from the process-wide generator, whose state must not matter
  Reseed(generator, 5);
  EXPECT_TRUE(model->Logits(rows_, training_).equal(first));
  EXPECT_TRUE(model->Logits(rows_, training_).equal(second));
  // Another rank's.
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

Module WithBuffer(const at::Tensor& buffer, const std::string& forward) {
  Module module{c10::QualifiedName("__torch__.M")};
  module.register_parameter("weight", at::ones({2, 3}).requires_grad_(true), false);
  module.register_buffer("seen", buffer);
  module.register_attribute("training", c10::BoolType::get(), true);
  module.define("def forward(self, x: Tensor):\n" + forward + kLinear);
  return module;
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
    // A checkpoint's values count.
    seen.tensor.fill_(10);
    model->Logits(rows_, training_);
    EXPECT_EQ(seen.tensor.sum().item<float>(), 22) << change;
  }
}

// Backward needs the values that forward read, not those that it assigned.
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

TEST_F(TorchscriptTest, WhatCannotBeTrainedIsRefused) {
  Module none{c10::QualifiedName("__torch__.M")};
  none.define("def forward(self, x: Tensor):\n  return x\n");
  EXPECT_THAT(Error(none), HasSubstr("expected parameters to train, found none"));

  Module typed{c10::QualifiedName("__torch__.M")};
  typed.register_parameter("weight", at::randn({2, 3}, at::kDouble).requires_grad_(true), false);
  typed.define(std::string("def forward(self, x: Tensor):\n") + kLinear);
  EXPECT_THAT(Error(typed), HasSubstr("parameter 'weight': expected Float, found Double"));

  Module frozen{c10::QualifiedName("__torch__.M")};
  frozen.register_parameter("weight", at::randn({2, 3}), false);
  frozen.define(std::string("def forward(self, x: Tensor):\n") + kLinear);
  EXPECT_THAT(Error(frozen),
              HasSubstr("parameter 'weight': expected one that requires a gradient"));
}

TEST_F(TorchscriptTest, AnotherSignatureOrShapeIsRefused) {
  EXPECT_THAT(Error(Linear("")), HasSubstr("expected a module with a method forward"));
  Module two = Linear("");
  two.define(
      "def forward(self, x: Tensor, y: Tensor):\n  return torch.linear(x + y, self.weight)\n");
  EXPECT_THAT(Error(two), HasSubstr("forward: expected one argument, found 2"));
  EXPECT_THAT(Error(Linear("  return [x]\n")), HasSubstr("expected a tensor, found GenericList"));
  EXPECT_THAT(Error(Linear(kLinear), {{"inputs", {3}}, {"classes", 4}}),
              HasSubstr("output for 2 samples: expected Float [2, 4], found Float [2, 2]"));
  EXPECT_THAT(Error(Linear(kLinear), {{"inputs", {5}}, {"classes", 2}}),
              HasSubstr("mat1 and mat2 shapes"));
  EXPECT_THAT(Error(Linear("  return torch.linear(x, self.weight).sum(0)\n")),
              HasSubstr("found Float [2]"));
}

TEST_F(TorchscriptTest, EvaluationThatIsRandomOrHasEffectsIsRefused) {
  EXPECT_THAT(Error(Linear("  return torch.linear(torch.dropout(x, 0.5, True), self.weight)\n")),
              HasSubstr("is random in evaluation too"));
  // Changed in place, or assigned.
  for (const char* change : {"  self.seen.add_(1.0)\n", "  self.seen = self.seen + 1.0\n"}) {
    EXPECT_THAT(Error(WithBuffer(at::zeros({2}), change)),
                HasSubstr("changes its buffer 'seen' in evaluation too"));
  }
  EXPECT_THAT(Error(WithBuffer(at::zeros({2}, at::kDouble), "  self.seen.add_(1.0)\n")),
              HasSubstr("'seen' was changed by forward"));
  Module counting = Linear("");
  counting.register_attribute("count", c10::IntType::get(), 0);
  counting.define(std::string("def forward(self, x: Tensor):\n  self.count = self.count + 1\n") +
                  kLinear);
  EXPECT_THAT(Error(counting), HasSubstr("forward assigns count, which is no tensor"));
  Module listing = Linear("");
  listing.register_attribute("means", c10::ListType::ofTensors(), c10::List<at::Tensor>());
  EXPECT_THAT(Error(WithMode(listing, "  if self.training:\n    self.means.append(x.mean())\n" +
                                          std::string(kLinear))),
              HasSubstr("forward changes means, which is no tensor"));
  EXPECT_THAT(
      Error(WithMode(Linear(""), "  if self.training:\n    self.weight = self.weight * 0.5\n" +
                                     std::string(kLinear))),
      HasSubstr("forward assigns weight, which is a parameter"));
}

class TorchscriptFileTest : public TorchscriptTest {
 protected:
  std::string OpenError(const std::string& bytes) {
    std::ofstream(folder_.Path("bad.pt"), std::ios::binary) << bytes;
    const auto model = Open("bad.pt");
    EXPECT_FALSE(model.ok());
    code_ = model.status().code();
    return Message(model.status());
  }
  std::string GoodBytes() {
    Linear(kLinear).save(folder_.Path("good.pt"));
    std::ifstream file(folder_.Path("good.pt"), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  absl::StatusCode code_ = absl::StatusCode::kOk;
};

TEST_F(TorchscriptFileTest, WhatIsNoTorchScriptIsRefused) {
  EXPECT_EQ(Open("none.pt").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(OpenError(""),
              HasSubstr("expected a TorchScript file (torch.jit.save), found something else"));
  EXPECT_EQ(code_, absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(OpenError("\x80\x02}q."), HasSubstr("found something else"));
  EXPECT_THAT(OpenError("PK\x03\x04 and no more"), HasSubstr("is cut off or damaged"));
  EXPECT_EQ(code_, absl::StatusCode::kDataLoss);
}

TEST_F(TorchscriptFileTest, AFileThatIsCutOffAnywhereIsRefused) {
  const std::string bytes = GoodBytes();
  for (size_t size = 2; size < bytes.size(); size += 1 + size / 2) {
    EXPECT_THAT(OpenError(bytes.substr(0, size)), HasSubstr("is cut off or damaged")) << size;
  }
  EXPECT_FALSE(OpenError(bytes.substr(0, bytes.size() - 1)).empty());
}

}  // namespace
}  // namespace muster::models
