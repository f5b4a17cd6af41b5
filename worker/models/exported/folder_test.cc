#include "worker/models/exported/folder.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/cross_entropy_loss.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/tensor.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/safetensors/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker/models/deferred_values.h"
#include "worker/models/exported/exported.h"
#include "worker/models/seed.h"

namespace muster::models::exported {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Returns a safetensors file of float32 tensors with the values 0, 1, 2, ...
std::string Safetensors(const std::vector<std::pair<std::string, std::vector<int64_t>>>& tensors) {
  std::vector<safetensors::Entry> entries;
  std::string data;
  for (const auto& [name, shape] : tensors) {
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    entries.push_back({.name = name, .dtype = safetensors::DType::kF32, .shape = shape});
    for (int64_t i = 0; i < elements; ++i) {
      const auto value = static_cast<float>(i);
      data.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  const auto plan = safetensors::Plan(entries, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan->prefix + data;
}

// A folder with one linear layer, [batch, 3] -> [batch, 2], as the unit "fc".
class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    manifest_ = json::parse(R"({
      "format": 2, "torch": "2.13.0", "muster": "0.4.0",
      "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 3]}],
      "output": {"kind": "logits", "dtype": "float32", "shape": ["batch", 2]},
      "precisions": ["float32", "float16"], "units": ["fc"],
      "parameters": [{"name": "fc.weight", "shape": [2, 3], "dtype": "float32", "unit": "fc",
                      "trainable": true},
                     {"name": "scale", "shape": [2], "dtype": "float32", "unit": "",
                      "trainable": false}],
      "buffers": [], "ties": {"head.weight": "fc.weight"}, "reference": {}})");
    graph_ = json::parse(R"({"format": 2, "torch": "2.13.0", "units": [
      {"name": "", "inputs": [{"value": "x", "kind": "tensor"}],
       "nodes": [{"call": "fc", "args": [{"value": "x"}], "out": ["y"]},
                 {"op": "aten.mul.Tensor", "in": "", "out": ["z"],
                  "args": {"self": {"value": "y"}, "other": {"parameter": "scale"}}}],
       "outputs": [{"value": "z"}]},
      {"name": "fc", "inputs": [{"value": "x", "kind": "tensor"}],
       "nodes": [{"op": "aten.linear.default", "in": "fc", "out": ["linear"],
                  "args": {"input": {"value": "x"}, "weight": {"parameter": "fc.weight"},
                           "bias": null}}],
       "outputs": [{"value": "linear"}]}]})");
  }

  void Write(const std::string& name, const std::string& contents) {
    ASSERT_TRUE(files::WriteAtomically(dir_.Path(name), contents).ok());
  }

  void WriteAll() {
    Write("manifest.json", manifest_.dump());
    Write("train.json", graph_.dump());
    Write("evaluate.json", graph_.dump());
    Write("model.safetensors", weights_);
    Write("constants.safetensors", Safetensors({}));
  }

  files::TempDir dir_;
  json manifest_, graph_;
  std::string weights_ = Safetensors({{"fc.weight", {2, 3}}, {"scale", {2}}});
};

TEST_F(FolderTest, IsAModelWithUnitsNamesAndFrozenParameters) {
  WriteAll();
  const auto model = CreateExported(dir_.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->Input().row_elements, 3);
  EXPECT_EQ((*model)->Input().classes, 2);
  const auto parameters = (*model)->Parameters();
  ASSERT_EQ(parameters.size(), 2);
  EXPECT_EQ(parameters[0].name, "scale");
  EXPECT_FALSE(parameters[0].tensor.requires_grad());
  EXPECT_EQ(parameters[1].name, "fc.weight");
  EXPECT_TRUE(parameters[1].tensor.requires_grad());
  EXPECT_EQ((*model)->root().children()[0]->name(), "fc");
  EXPECT_THAT((*model)->SourceOrder(), ::testing::ElementsAre("fc.weight", "scale"));
  EXPECT_EQ((*model)->ResolveWeight("head.weight").parameter, "fc.weight");

  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  const at::Tensor x = at::rand({5, 3});
  const at::Tensor found = (*model)->Logits(x, context);
  const at::Tensor expected = at::linear(x, parameters[1].tensor).mul(parameters[0].tensor);
  EXPECT_TRUE(found.equal(expected));
  found.sum().backward();
  EXPECT_TRUE(parameters[1].tensor.grad().defined());
}

// A large model is exported into several files; those of others may be in half precision.
TEST_F(FolderTest, ValuesMayBeInSeveralFilesAndInHalfPrecision) {
  WriteAll();
  std::string data;
  for (int i = 0; i < 6; ++i) {
    const auto value = static_cast<float>(i);
    data.append(reinterpret_cast<const char*>(&value) + 2, 2);  // the upper half is a bfloat16
  }
  const auto plan = safetensors::Plan({{"fc.weight", safetensors::DType::kBF16, {2, 3}}}, {});
  Write("model-00001-of-00002.safetensors", plan->prefix + data);
  Write("model-00002-of-00002.safetensors", Safetensors({{"scale", {2}}}));
  const json index = {{"weight_map",
                       {{"fc.weight", "model-00001-of-00002.safetensors"},
                        {"scale", "model-00002-of-00002.safetensors"}}}};
  Write("model.safetensors.index.json", index.dump());
  std::filesystem::remove(dir_.Path("model.safetensors"));
  const auto model = CreateExported(dir_.path());
  ASSERT_TRUE(model.ok()) << model.status();
  const at::Tensor weight = (*model)->Parameters()[1].tensor;
  EXPECT_TRUE(weight.detach().equal(at::tensor({0., 1., 2., 3., 4., 5.}, at::kFloat).view({2, 3})));
  json outside = index;
  outside["weight_map"]["scale"] = "../model.safetensors";
  Write("model.safetensors.index.json", outside.dump());
  EXPECT_THAT(std::string(CreateExported(dir_.path()).status().message()),
              HasSubstr("../model.safetensors"));
}

TEST_F(FolderTest, ValuesStayInTheFileUntilTheyAreNeeded) {
  WriteAll();
  DeferredValues deferred;
  absl::StatusOr<std::unique_ptr<Model>> model;
  {
    const DeferredValues::Scope scope(&deferred);
    model = CreateExported(dir_.path());
  }
  ASSERT_TRUE(model.ok()) << model.status();
  const at::Tensor weight = (*model)->Parameters()[1].tensor;
  EXPECT_EQ(weight.storage().nbytes(), 0);
  EXPECT_TRUE(deferred.Range(weight, 2, 5).equal(at::tensor({2.0f, 3.0f, 4.0f})));
}

TEST_F(FolderTest, RefusesWhatIsWrongByName) {
  struct Case {
    const char* name;
    std::function<void()> change;  // before the files are written
    const char* expected;
  };
  const std::vector<Case> cases = {
      {"format", [&] { manifest_["format"] = 9; }, "manifest.json: format: expected 2, found 9"},
      {"no-inputs", [&] { manifest_["inputs"] = json::array(); },
       "inputs: expected one or more, found none"},
      {"input-without-a-batch", [&] { manifest_["inputs"][0]["shape"] = {2, 3}; },
       "'x': expected \"batch\" as the first dimension"},
      {"negative-size", [&] { manifest_["parameters"][0]["shape"] = {-2, 3}; },
       "shape: expected sizes, found -2"},
      {"huge-size", [&] { manifest_["parameters"][0]["shape"] = {int64_t{1} << 62, 3}; },
       "expected Float [4611686018427387904, 3] as in manifest.json, found F32 [2, 3]"},
      {"two-parameters-of-a-name", [&] { manifest_["parameters"][1]["name"] = "fc.weight"; },
       "'fc.weight': expected a name of its own"},
      {"unit-that-is-not-there", [&] { manifest_["parameters"][0]["unit"] = "other"; },
       "has the unit 'other', which does not exist"},
      {"half-precision", [&] { manifest_["parameters"][0]["dtype"] = "float16"; },
       "'fc.weight': expected float32, found float16"},
      {"two-units-of-a-name", [&] { manifest_["units"] = {"fc", "fc"}; }, "has 'fc' twice"},
      {"no-parameters", [&] { manifest_["parameters"] = json::array(); },
       "parameters: expected one or more, found none"},
      {"tie-to-nothing", [&] { manifest_["ties"]["head.weight"] = "other"; },
       "ties: 'head.weight': expected another name of a tensor"},
      {"another-shape", [&] { weights_ = Safetensors({{"fc.weight", {3, 2}}, {"scale", {2}}}); },
       "model.safetensors: 'fc.weight': expected Float [2, 3] as in manifest.json, found F32 "
       "[3, 2]"},
      {"weights-of-another-model", [&] { weights_ = Safetensors({{"other", {2, 3}}}); },
       "model.safetensors: has no 'fc.weight'"},
      {"two-inputs-of-a-name", [&] { manifest_["inputs"].push_back(manifest_["inputs"][0]); },
       "inputs: has 'x' twice"},
      {"two-inputs",
       [&] {
         manifest_["inputs"].push_back(manifest_["inputs"][0]);
         manifest_["inputs"][1]["name"] = "y";
       },
       "train.json: expected the 2 inputs of the manifest, found 1"},
      {"a-range-without-numbers", [&] { manifest_["inputs"][0]["below"] = 0; },
       "inputs: 'x': below: expected 1 or more, found 0"},
      {"no-precisions", [&] { manifest_.erase("precisions"); }, "has no 'precisions'"},
      {"logits-of-any-size", [&] { manifest_["output"]["shape"] = {"batch", "sequence", 2}; },
       "output: shape: expected \"sequence\" only if the first input has it, too"},
      {"a-length-without-range", [&] { manifest_["inputs"][0]["shape"] = {"batch", "sequence"}; },
       "sequence: expected the range of the free dimensions"},
      {"a-range-without-free-length", [&] { manifest_["sequence"] = {{"example", 3}, {"min", 2}}; },
       "sequence: expected a length within its range, for a dimension \"sequence\""},
      {"an-example-outside-of-the-range",
       [&] {
         manifest_["inputs"][0]["shape"] = {"batch", "sequence"};
         manifest_["sequence"] = {{"example", 8}, {"min", 2}, {"max", 7}};
       },
       "sequence: expected a length within its range"},
      {"a-free-length-in-the-third-place",
       [&] { manifest_["inputs"][0]["shape"] = {"batch", 3, "sequence"}; },
       "shape: expected a size, \"batch\", or \"sequence\" as the second size, found 'sequence'"},
      {"a-causal-that-is-a-number", [&] { manifest_["output"]["causal"] = 1; },
       "output: causal: expected true or false, found 1"},
      {"loss-without-terms",
       [&] {
         manifest_["output"] = {{"kind", "loss"}, {"dtype", "float32"}, {"shape", json::array()}};
       },
       "manifest.json: has no 'terms'"},
      {"terms-of-another-name",
       [&] {
         manifest_["output"] = {{"kind", "loss"},
                                {"dtype", "float32"},
                                {"shape", json::array()},
                                {"terms", {{"inputs", "x"}}}};
       },
       "output: terms: "},
      {"loss-that-leaves-out-two-targets",
       [&] {
         manifest_["output"] = {{"kind", "loss"},
                                {"dtype", "float32"},
                                {"shape", json::array()},
                                {"terms", {{"input", "x"}, {"first", 2}, {"ignored", -100}}}};
       },
       "terms: first: expected 0 or 1, found 2"},
      {"another-kind-of-output", [&] { manifest_["output"]["kind"] = "Loss"; },
       "output: kind: expected logits or loss, found 'Loss'"},
      {"another-type-of-output", [&] { manifest_["output"]["dtype"] = "float64"; },
       "output: expected float32, found Double"},
      {"another-word-for-a-size", [&] { manifest_["inputs"][0]["shape"][1] = "width"; },
       "shape: expected a size, \"batch\", or \"sequence\" as the second size, found 'width'"},
      {"graph-of-another-model", [&] { graph_["units"][1]["name"] = "other"; },
       "train.json: expected the 2 units of the manifest, found 2 without 'fc'"},
  };
  const json manifest = manifest_, graph = graph_;
  const std::string weights = weights_;
  for (const Case& one : cases) {
    manifest_ = manifest, graph_ = graph, weights_ = weights;
    one.change();
    WriteAll();
    const auto model = CreateExported(dir_.path());
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << one.name;
    EXPECT_THAT(std::string(model.status().message()), HasSubstr(one.expected)) << one.name;
  }
}

// Makes the model return a row of `fc.weight` for each token of a sequence.
class SequencesTest : public FolderTest {
 protected:
  SequencesTest() {
    manifest_["inputs"] = {
        {{"name", "ids"}, {"dtype", "int64"}, {"shape", {"batch", "sequence"}}, {"below", 4}}};
    manifest_["output"]["shape"] = {"batch", "sequence", 4};
    manifest_["output"]["causal"] = true;
    manifest_["sequence"] = {{"example", 6}, {"min", 2}, {"max", 10}};
    manifest_["parameters"][0]["shape"] = {4, 4};
    manifest_["parameters"][1]["shape"] = {4};
    weights_ = Safetensors({{"fc.weight", {4, 4}}, {"scale", {4}}});
    graph_["units"][1]["nodes"] = {json::parse(R"({"op": "aten.embedding.default", "in": "fc",
        "out": ["linear"], "args": {"weight": {"parameter": "fc.weight"},
        "indices": {"value": "x"}, "padding_idx": -1, "scale_grad_by_freq": false,
        "sparse": false}})")};
  }

  absl::StatusOr<std::unique_ptr<Model>> Create(int64_t context) {
    WriteAll();
    return CreateExported(dir_.path(), context);
  }
};

TEST_F(SequencesTest, TheJobChoosesTheLengthOfSamples) {
  EXPECT_EQ((*Create(0))->Input().context, 6) << "that of the example";
  const auto model = Create(9);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->Input().context, 9);
  EXPECT_EQ((*model)->Input().vocab_size, 4);
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  for (const int64_t length : {2, 9}) {
    const at::Tensor tokens = at::ones({3, length}, at::kLong);
    EXPECT_EQ((*model)->Logits(tokens, context).sizes(), at::IntArrayRef({3, length, 4}));
  }
  EXPECT_THAT(std::string(Create(11).status().message()),
              HasSubstr("context: expected 2 to 10, for which the model was exported, found 11"));
  manifest_["sequence"].erase("max");
  EXPECT_TRUE(Create(1000000).ok());
  EXPECT_THAT(std::string(Create(1).status().message()),
              HasSubstr("context: expected 2 or more, for which the model was exported, found 1"));
}

TEST_F(SequencesTest, OneLengthCannotBeReplaced) {
  manifest_["inputs"][0]["shape"][1] = 6;
  manifest_["output"]["shape"][1] = 6;
  manifest_.erase("sequence");
  EXPECT_THAT(std::string(Create(6).status().message()),
              HasSubstr("context: found 6, but the length of the model's inputs is not free"));
  const auto model = Create(0);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(std::get<WholeSequences>(*(*model)->continuation()).length, 6);
}

TEST_F(SequencesTest, AModelContinuesSequencesIfItIsCausal) {
  const auto causal = Create(0);
  ASSERT_TRUE(causal.ok()) << causal.status();
  const auto sequences = std::get<WholeSequences>(*(*causal)->continuation());
  EXPECT_EQ(sequences.vocabulary, 4);
  EXPECT_EQ(sequences.length, std::nullopt);
  EXPECT_EQ(sequences.shortest, 2);
  manifest_["output"]["causal"] = false;
  const auto other = Create(0);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_FALSE((*other)->continuation().has_value());
  EXPECT_THAT((*other)->WhyNoContinuation(), HasSubstr("its logits depend on later tokens"));
  manifest_["output"].erase("causal");
  EXPECT_THAT((*Create(0))->WhyNoContinuation(),
              HasSubstr("export it again, with an example of different tokens"));
}

TEST_F(FolderTest, OnlyALanguageModelContinuesSequences) {
  WriteAll();
  const auto model = CreateExported(dir_.path());
  EXPECT_FALSE((*model)->continuation().has_value());
  EXPECT_THAT((*model)->WhyNoContinuation(), HasSubstr("expected one input of tokens"));
}

// Makes the model return the cross entropy of its logits and of the input `labels`.
TEST_F(FolderTest, ALossOfTheModelItselfIsTheMeanOverTheTargetsThatCount) {
  const json labels = {{"name", "labels"}, {"dtype", "int64"}, {"shape", {"batch"}}};
  manifest_["inputs"].push_back(labels);
  manifest_["output"] = {{"kind", "loss"},
                         {"dtype", "float32"},
                         {"shape", json::array()},
                         {"terms", {{"input", "labels"}, {"first", 0}, {"ignored", -100}}}};
  json& root = graph_["units"][0];
  root["inputs"].push_back({{"value", "labels"}, {"kind", "tensor"}});
  root["nodes"].push_back(json::parse(R"({"op": "aten.cross_entropy_loss.default", "in": "",
      "out": ["loss"], "args": {"self": {"value": "z"}, "target": {"value": "labels"},
      "weight": null, "reduction": 1, "ignore_index": -100, "label_smoothing": 0.0}})"));
  root["outputs"] = {{{"value", "loss"}}};
  WriteAll();
  const auto model = CreateExported(dir_.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_FALSE((*model)->HasPerplexity());
  EXPECT_THAT(std::string((*model)->SetLoss({}).message()),
              HasSubstr("the model returns its loss; allowed: no `loss`"));

  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  Batch batch = {.inputs = at::rand({3, 3}), .further = {at::tensor({1, -100, 0}, at::kLong)}};
  batch.targets = batch.further[0];
  ASSERT_TRUE((*model)->CheckBatch(batch).ok());
  const auto parameters = (*model)->Parameters();
  const at::Tensor logits =
      at::linear(batch.inputs, parameters[1].tensor).mul(parameters[0].tensor);
  const at::Tensor losses = at::cross_entropy_loss(logits, at::tensor({1, 0, 0}, at::kLong), {}, 0);
  const LossOutput some = (*model)->Loss(batch, context);
  EXPECT_EQ(some.terms, 2);
  EXPECT_FLOAT_EQ(some.mean_loss.item<float>(), losses[0].add(losses[2]).div(2).item<float>());

  // A mean over nothing would not be a number, in the loss and in all gradients.
  batch.targets = batch.further[0] = at::tensor({-100, -100, -100}, at::kLong);
  const LossOutput none = (*model)->Loss(batch, context);
  EXPECT_EQ(none.terms, 0);
  EXPECT_EQ(none.mean_loss.item<float>(), 0);
  none.mean_loss.backward();
  EXPECT_EQ(parameters[1].tensor.grad().abs().max().item<float>(), 0);
  EXPECT_EQ(batch.further[0][0].item<int64_t>(), -100);

  batch.further[0] = batch.further[0].to(at::kInt);
  EXPECT_THAT(std::string((*model)->CheckBatch(batch).message()),
              HasSubstr("'labels': expected Long [B], found Int [3]"));
}

TEST_F(FolderTest, APrecisionForWhichTheGraphsDoNotHoldIsRefused) {
  WriteAll();
  const auto model = CreateExported(dir_.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->CheckPrecision("float16").ok());
  EXPECT_THAT(std::string((*model)->CheckPrecision("bfloat16").message()),
              HasSubstr("expected float32 or float16, for which the model was exported, found "
                        "bfloat16; export it with precision=\"bfloat16\""));
}

TEST_F(FolderTest, TheHashIsThatOfWhatTheModelComputes) {
  WriteAll();
  const std::string hash = (*CreateExported(dir_.path()))->file_hash();
  EXPECT_EQ((*CreateExported(dir_.path()))->file_hash(), hash);
  graph_["units"][0]["nodes"][1]["op"] = "aten.div.Tensor";
  WriteAll();
  EXPECT_NE((*CreateExported(dir_.path()))->file_hash(), hash);
}

TEST_F(FolderTest, AResultOfAnotherShapeIsAnError) {
  manifest_["output"]["shape"] = {"batch", 7};
  WriteAll();
  const auto model = CreateExported(dir_.path());
  ASSERT_TRUE(model.ok()) << model.status();
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  try {
    (*model)->Logits(at::rand({5, 3}), context);
    FAIL() << "expected an error";
  } catch (const ModelError& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected a result of [5, 7] as in manifest.json, found "
                                        "Float [5, 2]"));
  }
}

TEST_F(FolderTest, AUnitThatReturnsItsParameterIsAnError) {
  graph_["units"][1]["nodes"] = json::parse(R"([{"op": "aten.t.default", "out": ["linear"],
      "args": {"self": {"parameter": "fc.weight"}}}])");
  WriteAll();
  const auto model = CreateExported(dir_.path());
  ASSERT_TRUE(model.ok()) << model.status();
  ForwardContext context(Mode::kTrain, MakeGenerator(0));
  EXPECT_THROW((*model)->Logits(at::rand({5, 3}), context), ModelError);
}

TEST_F(FolderTest, TheConfigurationOfTransformersIsReadAsData) {
  WriteAll();
  Write("config.json", R"({"model_type": "gpt2"})");
  const auto model = CreateExported(dir_.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->HuggingFaceConfig(), R"({"model_type": "gpt2"})");
  Write("config.json", "root:x:0:0");
  EXPECT_EQ(CreateExported(dir_.path()).status().code(), absl::StatusCode::kDataLoss);
  Write("config.json", std::string(2 << 20, ' '));
  EXPECT_THAT(std::string(CreateExported(dir_.path()).status().message()),
              HasSubstr("config.json: expected at most 1048576 bytes"));
}

TEST_F(FolderTest, RefusesDamagedFiles) {
  for (const char* name : {"manifest.json", "train.json", "evaluate.json", "model.safetensors",
                           "constants.safetensors"}) {
    WriteAll();
    auto contents = files::ReadFile(dir_.Path(name));
    ASSERT_TRUE(contents.ok());
    Write(name, contents->substr(0, contents->size() - 1));
    const auto cut = CreateExported(dir_.path());
    EXPECT_EQ(cut.status().code(), absl::StatusCode::kDataLoss) << name << ": " << cut.status();
    EXPECT_THAT(std::string(cut.status().message()), HasSubstr(name));
  }
  WriteAll();
  Write("train.json", R"({"format": 2, "format": 2})");
  EXPECT_THAT(std::string(CreateExported(dir_.path()).status().message()), HasSubstr("twice"));
  Write("train.json", std::string(100'000, '['));
  EXPECT_EQ(CreateExported(dir_.path()).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace muster::models::exported
