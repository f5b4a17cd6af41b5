// Plug-ins: examples/plugin, one with faults of every kind, and files that are no plug-ins.
#include "worker/models/plugin/plugin.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "ATen/TensorOperators.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/allclose.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/item.h"
#include "ATen/ops/log_softmax.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/randn.h"
#include "ATen/ops/tensor.h"
#include "ATen/ops/zeros.h"
#include "common/files/temp_dir.h"
#include "common/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "torch/version.h"
#include "worker/models/deferred_values.h"
#include "worker/models/recording_context.h"
#include "worker/models/seed.h"
#include "worker/models/spec_from_json.h"

namespace muster::models {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kFocal[] = "examples/plugin/focal.so";
constexpr char kFaults[] = "worker/models/plugin/plugin_faults.so";

absl::StatusOr<std::unique_ptr<Model>> Make(const std::string& path, const std::string& name,
                                            nlohmann::json options, uint64_t seed = 1) {
  if (options.is_null()) options = nlohmann::json::object();
  return CreateFromJson("plugin", {{"path", path}, {"name", name}, {"options", options}}, seed);
}

std::unique_ptr<Model> MakeFocal(const nlohmann::json& extra = {}, uint64_t seed = 1) {
  nlohmann::json options = {{"inputs", "4"}, {"width", "5"}, {"classes", "3"}};
  if (extra.is_object()) options.update(extra);
  auto model = Make(kFocal, "focal", options, seed);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

std::string Error(const absl::StatusOr<std::unique_ptr<Model>>& model) {
  EXPECT_FALSE(model.ok());
  return Message(model.status());
}

std::string ErrorOf(const std::string& fault) {
  return Error(Make(kFaults, "faulty", {{"fault", fault}}));
}

TEST(PluginTest, ItsUnitsAndParametersAreTheModels) {
  const auto model = MakeFocal();
  EXPECT_EQ(model->kind(), "plugin");
  std::vector<std::string> names;
  for (const Parameter& parameter : model->Parameters()) {
    names.push_back(parameter.name);
    EXPECT_TRUE(parameter.tensor.requires_grad());
  }
  EXPECT_THAT(names, ElementsAre("layers.0.weight", "layers.0.bias", "layers.1.weight",
                                 "layers.1.bias", "head.weight", "head.bias"));
  ASSERT_EQ(model->root().children().size(), 3u);
  EXPECT_EQ(model->root().children()[2]->name(), "head");
  EXPECT_EQ(model->Input().row_elements, 4);
  EXPECT_EQ(model->Input().classes, 3);
}

TEST(PluginTest, InitialValuesDependOnTheSeedAndTheNameOnly) {
  const auto a = MakeFocal()->Parameters();
  const auto b = MakeFocal({{"layers", "1"}})->Parameters();
  const auto c = MakeFocal({}, 2)->Parameters();
  EXPECT_TRUE(a[0].tensor.equal(b[0].tensor));
  EXPECT_EQ(a[4].name, b[2].name);
  EXPECT_TRUE(a[4].tensor.equal(b[2].tensor));
  EXPECT_FALSE(a[0].tensor.equal(c[0].tensor));
}

TEST(PluginTest, TheProcessWideGeneratorBeginsWithTheSeed) {
  const at::Tensor first = at::empty({5, 3}).normal_(0, 0.1, MakeGenerator(7)).mul_(2);
  const auto make = [] {
    return *Make(kFaults, "faulty", {{"fault", "draws"}, {"layers", "2"}, {"width", "5"}}, 7);
  };
  EXPECT_TRUE(make()->Parameters()[0].tensor.equal(first));
  DeferredValues deferred;
  const DeferredValues::Scope recorded(&deferred);
  const auto model = make();
  const at::Tensor weight = model->Parameters()[0].tensor;
  ASSERT_TRUE(deferred.Has(weight));
  EXPECT_TRUE(deferred.Of(weight).equal(first));
}

TEST(PluginTest, ItsOwnLossIsTheLoss) {
  const auto model = MakeFocal({{"gamma", "3"}});
  const Batch batch = {at::randn({6, 2, 2}, MakeGenerator(1)),
                       at::tensor({0, 1, 2, 0, 1, 2}, at::kLong)};
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  const LossOutput loss = model->Loss(batch, context);
  const at::Tensor logits = model->Logits(batch.inputs, context);
  const at::Tensor log_p =
      at::log_softmax(logits, 1).gather(1, batch.targets.unsqueeze(1)).squeeze(1);
  const at::Tensor expected = ((1 - log_p.exp()).pow(3) * -log_p).mean();
  EXPECT_TRUE(at::allclose(loss.mean_loss, expected));
  EXPECT_EQ(loss.terms, 6);
  EXPECT_FALSE(loss.correct.has_value());
  context.set_mode(Mode::kEvaluate);
  EXPECT_EQ(model->Loss(batch, context).correct,
            logits.argmax(1).eq(batch.targets).sum().item<int64_t>());
  EXPECT_THAT(Message(model->SetLoss({})), HasSubstr("has a loss of its own"));
}

TEST(PluginTest, AModelWithoutALossTakesTheJobs) {
  const auto model = *Make(kFocal, "plain", {{"inputs", "4"}, {"width", "5"}, {"classes", "3"}});
  ASSERT_TRUE(model->SetLoss({.label_smoothing = 0.1}).ok());
  const Batch batch = {at::randn({3, 4}, MakeGenerator(1)), at::tensor({0, 1, 2}, at::kLong)};
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  const at::Tensor expected = at::cross_entropy_loss(
      model->Logits(batch.inputs, context), batch.targets, {}, at::Reduction::Mean, -100, 0.1);
  EXPECT_TRUE(model->Loss(batch, context).mean_loss.equal(expected));
}

TEST(PluginTest, TheStepHookChangesParametersInPlace) {
  const auto model = MakeFocal({{"max_norm", "0.25"}});
  const at::Tensor weight = model->Parameters()[0].tensor;
  ASSERT_GT(weight.detach().norm(2, 1).max().item<float>(), 0.25);
  ASSERT_TRUE(model->BeforeStep(1).ok());
  EXPECT_LE(weight.detach().norm(2, 1).max().item<float>(), 0.25 + 1e-6);
}

TEST(PluginTest, AReplacedParameterIsTheOneThatIsUsed) {
  const auto model = MakeFocal();
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  const at::Tensor rows = at::randn({2, 4}, MakeGenerator(1));
  Unit& head = *model->root().children().back();
  const at::Tensor replaced = at::zeros({3, 5}).requires_grad_(true);
  head.ReplaceParameter(0, replaced);
  const at::Tensor logits = model->Logits(rows, context);
  EXPECT_TRUE(logits[0].equal(head.own_parameters()[1].tensor));
  logits.sum().backward();
  EXPECT_TRUE(replaced.grad().defined());
}

TEST(PluginTest, EveryCallOfAUnitGoesThroughTheContext) {
  const auto model = MakeFocal();
  RecordingContext context(Mode::kTrain, MakeGenerator(0));
  model->Loss({at::randn({2, 4}), at::tensor({0, 1}, at::kLong)}, context);
  EXPECT_THAT(context.calls, ElementsAre("", "layers.0", "layers.1", "head"));
}

TEST(PluginTest, UnknownNamesAndOptionsSayWhatThereIs) {
  EXPECT_EQ(Error(Make(kFocal, "focl", {})),
            "examples/plugin/focal.so: has no model 'focl'; allowed is one of: focal, plain");
  EXPECT_EQ(
      Error(Make(kFocal, "plain",
                 {{"inputs", "4"}, {"width", "5"}, {"classes", "3"}, {"gama", "2"}})),
      "plug-in examples/plugin/focal.so: model 'plain': unknown options: gama; allowed: classes, "
      "inputs, layers, width");
  EXPECT_EQ(Error(Make(kFocal, "plain", {{"inputs", "4x"}})),
            "plug-in examples/plugin/focal.so: model 'plain': option inputs: expected an integer "
            "from 1 on, "
            "found '4x'");
  EXPECT_THAT(Error(Make(kFocal, "plain", nlohmann::json::object())),
              HasSubstr("option inputs: expected an integer from 1 on, found nothing"));
}

struct Fault {
  const char* name;
  const char* message;
};

class PluginFault : public ::testing::TestWithParam<Fault> {};

TEST_P(PluginFault, IsAnErrorAtSetUpThatNamesThePlugin) {
  EXPECT_THAT(ErrorOf(GetParam().name),
              AllOf(HasSubstr("plug-in worker/models/plugin/plugin_faults.so: model 'faulty'"),
                    HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Table, PluginFault,
    ::testing::Values(
        Fault{"create-throws", ": not today"}, Fault{"no-model", "expected a model, found nothing"},
        Fault{"no-root", "a model needs a root"}, Fault{"no-parameters", "found none"},
        Fault{"double", "parameter 'weight': expected Float, found Double"},
        Fault{"twice", "parameter 'weight': the name appears twice"},
        Fault{"shared", "parameter 'same': it shares memory with another parameter or buffer"},
        Fault{"part", "parameter 'part': it shares memory with another parameter or buffer"},
        Fault{"no-tensor", "parameter 'nothing': found no tensor"},
        Fault{"half-buffer", "buffer 'half': expected Float or Long, found Half"},
        Fault{"no-child", "expected a child, found nothing"},
        Fault{"no-classes", "input: rows need classes"},
        Fault{"no-row", "input: rows need a shape"},
        Fault{"numbers-without-loss", "a loss of its own (ModelWithLoss)"},
        Fault{"forward-throws", "root: no luck"},
        Fault{"torch-throws", "root: mat1 and mat2 shapes"},
        Fault{"returns-nothing", "root: expected a tensor from Forward, found nothing"},
        Fault{"stranger", "calls root, which is none of its children"},
        Fault{"other-shape", "expected Float [2, 2], found Float [2]"},
        Fault{"loss-throws", "loss: loss of face"},
        Fault{"loss-not-scalar",
              "loss: expected a mean that is one Float without dimensions, found Float [2, 2]"},
        Fault{"loss-nothing",
              "loss: expected a mean that is one Float without dimensions, found nothing"},
        Fault{"loss-bfloat16",
              "found BFloat16 []; under bfloat16 and float16 take the logits to Float first"},
        Fault{"loss-no-terms", "loss: expected 1 or more terms, found 0"}),
    [](const auto& info) {
      std::string name = info.param.name;
      name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
      return name;
    });

TEST(PluginTest, WhatFailsOnlyInTrainingIsAModelErrorWithItsName) {
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  const Batch batch = {at::randn({2, 3}), at::tensor({0, 1}, at::kLong)};
  const auto thrown = [&](const char* fault) -> std::string {
    const auto model = Make(kFaults, "faulty", {{"fault", fault}});
    EXPECT_TRUE(model.ok()) << model.status();
    try {
      (*model)->Loss(batch, context);
    } catch (const ModelError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(thrown("forward-throws-when-training"),
            "plug-in worker/models/plugin/plugin_faults.so: model 'faulty': root: threw something "
            "that is no "
            "std::exception");
  EXPECT_THAT(thrown("loss-no-gradient"),
              HasSubstr("loss: expected a mean that depends on the parameters"));
}

TEST(PluginTest, AModelSaysWhetherItRunsCollectivesOfItsOwn) {
  for (const bool runs : {false, true}) {
    const auto model = Make(kFaults, "faulty", {{"fault", runs ? "runs-collectives" : "none"}});
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->RunsCollectives(), runs);
  }
}

TEST(PluginTest, UnitsTakeAndGiveSeveralTensors) {
  const auto model = Make(kFaults, "faulty", {{"fault", "several"}});
  ASSERT_TRUE(model.ok()) << model.status();
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  const LossOutput loss = (*model)->Loss({at::ones({4, 3}), at::zeros({4}, at::kLong)}, context);
  // The sum of two times the input is (2, 2, 2). The root adds the numbers; its child gives the
  // mean.
  EXPECT_EQ(loss.mean_loss.item<float>(), 8);
  loss.mean_loss.backward();
  for (const Parameter& parameter : (*model)->Parameters()) {
    EXPECT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
  }
}

TEST(PluginTest, CallsWithAnotherNumberOfTensorsAreNamed) {
  EXPECT_THAT(ErrorOf("several-inputs"),
              HasSubstr("model 'faulty': unit 'square': expected one input, found 2"));
  EXPECT_THAT(ErrorOf("several-for-root"),
              HasSubstr("model 'faulty': root: expected one input, found 2"));
  EXPECT_THAT(ErrorOf("several-undefined"),
              HasSubstr("model 'faulty': root: calls unit 'adds' with no tensor"));
  EXPECT_THAT(ErrorOf("several-outputs"),
              HasSubstr("model 'faulty': root: calls unit 'adds' by Call, but it has 2 outputs; "
                        "CallMany takes them"));
}

// Errors of a strategy that pass through the plug-in's code are no faults of the plug-in.
TEST(PluginTest, WhatTheWorkerThrowsInACallStaysAsItIs) {
  class Lost : public std::runtime_error {
   public:
    using std::runtime_error::runtime_error;
  };
  class Losing : public ForwardContext {
   public:
    using ForwardContext::ForwardContext;
    Tensors CallMany(Unit& unit, const Tensors& inputs) override {
      if (unit.name() == "layers.1") throw Lost("rank 1 is gone");
      return ForwardContext::CallMany(unit, inputs);
    }
  };
  Losing context(Mode::kTrain, MakeGenerator(0));
  EXPECT_THROW(MakeFocal()->Loss({at::randn({2, 4}), at::tensor({0, 1}, at::kLong)}, context),
               Lost);
}

TEST(PluginTest, AStepHookMayFreezeAndItsFailureIsAStatusWithItsName) {
  const auto throws = *Make(kFaults, "faulty", {{"fault", "hook-throws"}});
  EXPECT_TRUE(throws->BeforeStep(2).ok());
  EXPECT_EQ(
      Message(throws->BeforeStep(3)),
      "plug-in worker/models/plugin/plugin_faults.so: model 'faulty': step hook: no third step");
  const auto freezes = *Make(kFaults, "faulty", {{"fault", "hook-freezes"}});
  EXPECT_TRUE(freezes->BeforeStep(1).ok());
  EXPECT_FALSE(freezes->Parameters()[0].tensor.requires_grad());
}

TEST(PluginTest, AFlagHookThatWritesAValueEndsWithBothNames) {
  const auto flags = *Make(kFaults, "faulty", {{"fault", "flags-in-turn"}});
  EXPECT_EQ(flags->step_hook(), HookKind::kFlags);
  EXPECT_TRUE(flags->BeforeStep(2).ok());
  EXPECT_FALSE(flags->Parameters()[0].tensor.requires_grad());
  const auto writes = *Make(kFaults, "faulty", {{"fault", "flags-writes"}});
  const at::Tensor weight = writes->Parameters()[0].tensor;
  const at::Tensor before = weight.clone();
  EXPECT_EQ(Message(writes->BeforeStep(1)),
            "plug-in worker/models/plugin/plugin_faults.so: model 'faulty': step hook: a FlagHook "
            "freezes and unfreezes parameters and does nothing else, but it writes parameter "
            "'weight' (aten::fill_); derive from StepHook to change values");
  EXPECT_TRUE(weight.equal(before));
}

TEST(PluginTest, AFlagHookThatCatchesTheRefusalOfAWriteEndsWithTheSameError) {
  const auto catches = *Make(kFaults, "faulty", {{"fault", "flags-catches"}});
  const at::Tensor weight = catches->Parameters()[0].tensor;
  const at::Tensor before = weight.clone();
  const absl::Status status = catches->BeforeStep(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("model 'faulty': step hook: a FlagHook freezes and "
                                         "unfreezes parameters and does nothing else, but it "
                                         "writes parameter 'weight' (aten::fill_)"));
  EXPECT_TRUE(weight.equal(before));
}

TEST(PluginTest, WhatIsFrozenStaysSoOverTheStepHook) {
  const auto model = MakeFocal({{"max_norm", "0.25"}});
  const auto parameters = model->Parameters();
  at::Tensor(parameters[0].tensor).requires_grad_(false);
  EXPECT_EQ(model->step_hook(), HookKind::kValues);
  EXPECT_TRUE(model->BeforeStep(1).ok());
  // With all parameters frozen, a loss needs no gradient.
  for (const auto& [name, tensor] : parameters) at::Tensor(tensor).requires_grad_(false);
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  const Batch batch = {at::randn({3, 4}, MakeGenerator(1)), at::tensor({0, 1, 2}, at::kLong)};
  EXPECT_FALSE(model->Loss(batch, context).mean_loss.requires_grad());
}

class PluginFileTest : public ::testing::Test {
 protected:
  // Returns a copy of the example in which `to` replaces `from`, of the same length.
  std::string Patched(const std::string& from, const std::string& to) {
    std::string bytes = Bytes();
    EXPECT_EQ(from.size(), to.size());
    for (size_t at; (at = bytes.find(from)) != std::string::npos;)
      bytes.replace(at, from.size(), to);
    return Write("patched.so", bytes);
  }
  std::string Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_.Path(name), std::ios::binary) << bytes;
    return folder_.Path(name);
  }
  static std::string Bytes() {
    std::ifstream file(kFocal, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  files::TempDir folder_;
};

TEST_F(PluginFileTest, OtherVersionsAreRefusedWithBothBeforeAnythingIsLoaded) {
  const auto other = Make(Patched("interface=3;", "interface=7;"), "focal", {});
  EXPECT_EQ(other.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Error(other),
              HasSubstr("was built against other versions, build it again: the plug-in interface: "
                        "the plug-in was built against '7', this worker against '3'"));
  EXPECT_THAT(Error(Make(Patched("torch=2.", "torch=1."), "focal", {})),
              AllOf(HasSubstr("LibTorch: the plug-in was built against '1."),
                    HasSubstr("this worker against '" TORCH_VERSION "'")));
  EXPECT_THAT(Error(Make(Patched("CXX11_ABI=1;", "CXX11_ABI=0;"), "focal", {})),
              AllOf(HasSubstr("the C++ library: the plug-in was built against 'libstdc++ with "
                              "_GLIBCXX_USE_CXX11_ABI=0'"),
                    HasSubstr("ABI=1'")));
}

TEST_F(PluginFileTest, FilesThatAreNoPluginsSayWhatTheyAre) {
  EXPECT_EQ(Make(folder_.Path("none.so"), "x", {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Error(Make(folder_.Path("none.so"), "x", {})), HasSubstr("none.so"));
  EXPECT_THAT(Error(Make(Write("empty.so", ""), "x", {})), HasSubstr("found an empty file"));
  EXPECT_THAT(Error(Make(Write("text.so", "int main() {}\n"), "x", {})),
              HasSubstr("found text that begins with 'int main() {}'"));
  EXPECT_THAT(Error(Make(Write("bytes.so", std::string(100, '\0')), "x", {})),
              HasSubstr("found something else"));
  EXPECT_THAT(Error(Make(Patched("muster-plugin-stamp", "muster-plugin-stump"), "x", {})),
              HasSubstr("found a shared object without MUSTER_PLUGIN"));
  EXPECT_THAT(Error(Make(Patched("muster_plugin_entry", "muster_plugin_exit_"), "x", {})),
              HasSubstr("has no symbol muster_plugin_entry"));
  EXPECT_THAT(Error(Make(folder_.path(), "x", {})),
              HasSubstr("expected a regular file, found a directory"));
}

TEST_F(PluginFileTest, AFileThatIsCutOffAnywhereIsRefused) {
  const std::string bytes = Bytes();
  ASSERT_GT(bytes.size(), 10000u);
  for (size_t size = 1; size < bytes.size(); size += 1 + size / 3) {
    EXPECT_FALSE(Make(Write("cut.so", bytes.substr(0, size)), "focal", {}).ok()) << size;
  }
  EXPECT_THAT(Error(Make(Write("cut.so", bytes.substr(0, bytes.size() - 1)), "focal", {})),
              HasSubstr("is cut off: expected at least"));
}

TEST_F(PluginFileTest, ASymbolThatNobodyHasIsToldByItsName) {
  EXPECT_THAT(Error(Make(Patched("log_softmax_int", "log_softmax_xyz"), "focal", {})),
              AllOf(HasSubstr("cannot be loaded"), HasSubstr("undefined symbol")));
}

}  // namespace
}  // namespace muster::models
