// Scripts that would do more than compute. All are refused, and no part of them runs.
#include <filesystem>
#include <functional>
#include <string>

#include "ATen/core/Tensor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "caffe2/serialize/inline_container.h"
#include "common/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/csrc/jit/api/module.h"
#include "worker/models/allowed_operators.h"
#include "worker/models/torchscript/script_fixture.h"

namespace muster::models {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::jit::Module;

class HarmfulScriptTest : public TorchscriptTest {
 protected:
  std::string born() const { return folder_.Path("born"); }
  // Returns an expression that makes the file born() when it runs.
  std::string Write() const { return absl::StrCat("torch.from_file(\"", born(), "\", True, 10)"); }
  // Returns a line of forward with this expression, whose result is used.
  std::string WriteLine() const { return absl::StrCat("  x = x + ", Write(), ".sum()\n"); }
  bool Ran() const { return std::filesystem::exists(born()); }

  // Copies a saved module; `change` gets the name and the text of each record.
  std::string Changed(const Module& module,
                      const std::function<std::string(const std::string&, std::string)>& change,
                      const std::string& more = "") {
    module.save(folder_.Path("good.pt"));
    caffe2::serialize::PyTorchStreamReader from(folder_.Path("good.pt"));
    caffe2::serialize::PyTorchStreamWriter to(folder_.Path("changed.pt"));
    for (const std::string& name : from.getAllRecords()) {
      if (name == "version" || name == "byteorder" || name[0] == '.') continue;
      const auto [data, size] = from.getRecord(name);
      const std::string text =
          change(name, std::string(static_cast<const char*>(data.get()), size));
      to.writeRecord(name, text.data(), text.size());
    }
    if (!more.empty()) to.writeRecord(more, "", 0);
    to.writeEndOfFile();
    return "changed.pt";
  }
  // Returns a module with one more argument, the number `more`, whose default is 3. `now` replaces
  // its type and value.
  std::string WithDefault(const std::string& now) {
    Module module = Linear("");
    module.define(std::string("def forward(self, x: Tensor, more: int = 3):\n") + kLinear);
    return Changed(module, [&](const std::string& name, std::string text) {
      if (!absl::EndsWith(name, ".py")) return text;
      EXPECT_TRUE(absl::StrContains(text, "more: int=3")) << text;
      return absl::StrReplaceAll(text, {{"more: int=3", absl::StrCat("more: ", now)}});
    });
  }
  // Returns a module whose code has `line` in the class.
  std::string WithLine(const std::string& line) {
    return Changed(Linear(kLinear), [&](const std::string& name, std::string text) {
      if (!absl::EndsWith(name, ".py")) return text;
      EXPECT_TRUE(absl::StrContains(text, "  __buffers__ = []\n")) << text;
      return absl::StrReplaceAll(
          text, {{"  __buffers__ = []\n", absl::StrCat("  __buffers__ = []\n", line)}});
    });
  }
  std::string OpenError(const std::string& name) {
    const auto model = Open(name);
    EXPECT_FALSE(model.ok());
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(Ran());
    return Message(model.status());
  }
};

TEST_F(HarmfulScriptTest, OperatorsThatDoMoreThanComputeAreRefusedWithMethodAndLine) {
  const Module saves =
      Linear(absl::StrCat("  torch.save(x, \"", born(), "\")\n", kLinear), "__torch__.Saves");
  EXPECT_THAT(Error(saves), AllOf(HasSubstr("Saves.forward calls aten::save (line "),
                                  HasSubstr("expected only operators that compute")));
  EXPECT_THAT(Error(Linear(absl::StrCat(WriteLine(), kLinear))),
              HasSubstr("M.forward calls aten::from_file (line "));
  EXPECT_THAT(Error(Linear(std::string("  torch.manual_seed(1)\n") + kLinear)),
              HasSubstr("M.forward calls aten::manual_seed"));
  // The position of the call, and whether it is reached, do not matter.
  EXPECT_THAT(Error(Linear(absl::StrCat("  if x.size(0) > 1000000:\n  ", WriteLine(), kLinear))),
              HasSubstr("M.forward calls aten::from_file"));
  EXPECT_FALSE(Ran());
}

TEST_F(HarmfulScriptTest, AllMethodsOfAllClassesCount) {
  Module top = Linear(kLinear);
  top.define("def unused(self, x: Tensor) -> Tensor:\n  return " + Write() + "\n");
  EXPECT_THAT(Error(top), HasSubstr("M.unused calls aten::from_file"));

  Module with_child = Linear("");
  Module child{c10::QualifiedName("__torch__.Child")};
  child.define("def forward(self, x: Tensor) -> Tensor:\n  return " + Write() + "\n");
  with_child.register_module("child", child);
  with_child.define(std::string("def forward(self, x: Tensor):\n") + kLinear);
  EXPECT_THAT(Error(with_child), HasSubstr("Child.forward calls aten::from_file"));
  EXPECT_FALSE(Ran());
}

TEST_F(HarmfulScriptTest, NoMoreThanThreeOperatorsAreTold) {
  const std::string four = absl::StrCat("  torch.save(x, \"", born(),
                                        "\")\n  torch.manual_seed(1)\n  x.sum().backward()\n");
  EXPECT_THAT(Error(Linear(absl::StrCat(four, WriteLine(), kLinear))),
              HasSubstr("and 1 more; expected"));
  EXPECT_FALSE(Ran());
}

TEST_F(HarmfulScriptTest, DefaultsThatAreComputedAreRefusedBeforeTheyAre) {
  EXPECT_THAT(
      OpenError(WithDefault("Tensor=" + Write())),
      AllOf(HasSubstr("the default of the argument 'more' is no plain value but computed "
                      "(line "),
            HasSubstr("of code/__torch__.py)"), HasSubstr("which runs while the file is loaded")));
  EXPECT_THAT(OpenError(WithDefault("List[Tensor]=[" + Write() + "]")),
              HasSubstr("'more' is no plain value"));
  EXPECT_THAT(OpenError(WithDefault("Tensor=annotate(Tensor, " + Write() + ")")),
              HasSubstr("'more' is no plain value"));
  EXPECT_THAT(OpenError(WithDefault("float=1.0 if 1 > 2 else 3.0")),
              HasSubstr("'more' is no plain value"));
  // The default is in a function inside a method.
  EXPECT_THAT(OpenError(WithLine("  def unused(self, x: Tensor) -> Tensor:\n"
                                 "    def inner(y: Tensor=" +
                                 Write() + ") -> Tensor:\n      return y\n    return inner(x)\n")),
              HasSubstr("the default of the argument 'y'"));
}

TEST_F(HarmfulScriptTest, PlainDefaultsAreLoaded) {
  for (const char* plain :
       {"int=-3", "float=inf", "float=1.0000000000000001e-05", "str=\"a\"", "bool=True",
        "Optional[Tensor]=None", "List[int]=[1, 2]", "List[int]=annotate(List[int], [])",
        "Tuple[int, Tuple[float, str]]=(1, (2., \"b\"))", "Dict[str, int]={\"a\": 1}",
        "Device=torch.device(\"cpu\")"}) {
    const auto model = Open(WithDefault(plain));
    EXPECT_TRUE(model.ok()) << plain << ": " << model.status();
  }
}

TEST_F(HarmfulScriptTest, ConstantsOfAClassThatAreComputedAreRefusedBeforeTheyAre) {
  EXPECT_THAT(OpenError(WithLine("  k : Final[Tensor] = " + Write() + "\n")),
              HasSubstr("a constant of class M is no plain value but computed (line "));
  EXPECT_TRUE(Open(WithLine("  k : Final[Tuple[int, int]] = (2, 2)\n")).ok());
}

TEST_F(HarmfulScriptTest, SetStateIsRefusedBeforeItRuns) {
  EXPECT_THAT(OpenError(WithLine("  def __getstate__(self) -> Tensor:\n    return self.weight\n"
                                 "  def __setstate__(self, state: Tensor) -> NoneType:\n    y = " +
                                 Write() + "\n    self.weight = state\n    return None\n")),
              HasSubstr("class M has a __setstate__ (line "));
}

TEST_F(HarmfulScriptTest, ObjectsOfClassesInCppAreRefused) {
  const auto as_class = [](const std::string& name, std::string text) {
    // A class's name in the pickle begins with "c": the module, and the name within the module.
    return name == "data.pkl"
               ? absl::StrReplaceAll(text, {{"c__torch__\nM\n", "c__torch__.torch\nclasses.a.B\n"}})
               : text;
  };
  EXPECT_THAT(OpenError(Changed(Linear(kLinear), as_class)),
              HasSubstr("data.pkl holds an object of a class in C++ (torch.classes)"));
}

TEST_F(HarmfulScriptTest, RecordsThatCouldBeTakenForOthersAreRefused) {
  const auto same = [](const std::string&, std::string text) { return text; };
  EXPECT_THAT(OpenError(Changed(Linear(kLinear), same, "code/__TORCH__.py")),
              HasSubstr("has two records 'code/__TORCH__.py'"));
  EXPECT_THAT(OpenError(Changed(Linear(kLinear), same,
                                absl::StrCat("code/", std::string(600, 'a'), ".py"))),
              HasSubstr("has a record whose name is too long: "));
  EXPECT_THAT(OpenError(Changed(Linear(kLinear), same, "Model.json")),
              HasSubstr("has the format of an old PyTorch"));
}

TEST(AllowedOperators, AreListed) {
  for (const char* name : {"aten::add", "aten::add_", "aten::__getitem__", "aten::lstm",
                           "aten::_convolution", "prim::If", "aten::relu_", "aten::numpy_T"}) {
    EXPECT_TRUE(IsAllowedOperator(name)) << name;
  }
  for (const char* name : {"aten::save", "aten::from_file", "aten::set_", "aten::manual_seed",
                           "aten::nobody", "aten::", "aten::_", "save", "prim::rpc_sync",
                           "prim::PythonOp", "c10d::add", "quantized::add", "prims::add"}) {
    EXPECT_FALSE(IsAllowedOperator(name)) << name;
  }
}

}  // namespace
}  // namespace muster::models
