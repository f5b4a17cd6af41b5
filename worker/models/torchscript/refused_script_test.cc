// Scripts and files that are refused.
#include <fstream>
#include <iterator>
#include <string>

#include "ATen/core/Tensor.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/zeros.h"
#include "common/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/csrc/jit/api/module.h"
#include "worker/models/seed.h"
#include "worker/models/torchscript/script_fixture.h"

namespace muster::models {
namespace {

using ::testing::HasSubstr;
using torch::jit::Module;

class RefusedScriptTest : public TorchscriptTest {};

TEST_F(RefusedScriptTest, PartsOfOneMemoryAreRefused) {
  Module module{c10::QualifiedName("__torch__.M")};
  const at::Tensor weight = at::randn({2, 2}, MakeGenerator(1));
  module.register_parameter("a", weight.detach().requires_grad_(true), false);
  module.register_parameter("b", weight.t().detach().requires_grad_(true), false);
  module.define(
      "def forward(self, x: Tensor):\n  return torch.linear(torch.linear(x, self.a), self.b)\n");
  EXPECT_THAT(Error(module, {{"inputs", {2}}, {"classes", 2}}),
              HasSubstr("'a' and 'b': share a part of their memory"));
}

TEST_F(RefusedScriptTest, WhatCannotBeTrainedIsRefused) {
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

TEST_F(RefusedScriptTest, AnotherSignatureOrShapeIsRefused) {
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

TEST_F(RefusedScriptTest, EvaluationThatIsRandomOrHasEffectsIsRefused) {
  const std::string dropout = "  return torch.linear(torch.dropout(x, 0.5, True), self.weight)\n";
  // A forward that is random in every tenth run.
  const std::string seldom =
      "  y = torch.linear(x, self.weight)\n"
      "  if float(torch.rand([1])) < 0.1:\n"
      "    y = y + 1.0\n"
      "  return y\n";
  for (const std::string& forward : {dropout, seldom}) {
    EXPECT_THAT(Error(Linear(forward)), HasSubstr("is random in evaluation too"));
  }
  // The buffer is changed in place, or assigned.
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

class RefusedFileTest : public TorchscriptTest {
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

TEST_F(RefusedFileTest, WhatIsNoTorchScriptIsRefused) {
  EXPECT_EQ(Open("none.pt").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(OpenError(""),
              HasSubstr("expected a TorchScript file (torch.jit.save), found something else"));
  EXPECT_EQ(code_, absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(OpenError("\x80\x02}q."), HasSubstr("found a Python pickle"));
  EXPECT_THAT(OpenError("PK\x03\x04 and no more"), HasSubstr("is cut off or damaged"));
  EXPECT_EQ(code_, absl::StatusCode::kDataLoss);
}

TEST_F(RefusedFileTest, AFileThatIsCutOffAnywhereIsRefused) {
  const std::string bytes = GoodBytes();
  for (size_t size = 2; size < bytes.size(); size += 1 + size / 2) {
    EXPECT_THAT(OpenError(bytes.substr(0, size)), HasSubstr("is cut off or damaged")) << size;
  }
  EXPECT_FALSE(OpenError(bytes.substr(0, bytes.size() - 1)).empty());
}

}  // namespace
}  // namespace muster::models
