#include "worker/models/exported/graph.h"

#include <functional>
#include <string>
#include <vector>

#include "ATen/ops/equal.h"
#include "ATen/ops/linear.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/relu.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker/models/exported/run.h"
#include "worker/models/seed.h"

namespace muster::models::exported {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// A root that calls one unit, a linear layer, and then applies relu. The buffer counts calls.
json Example() {
  return json::parse(R"({
    "format": 2, "torch": "2.13.0", "units": [
      {"name": "", "inputs": [{"value": "x", "kind": "tensor"}],
       "nodes": [
         {"call": "layer", "args": [{"value": "x"}], "out": ["y"]},
         {"op": "aten.add_.Tensor", "in": "",
          "args": {"self": {"buffer": "calls"}, "other": 1, "alpha": 1}, "out": ["counted"]},
         {"op": "aten.relu.default", "args": {"self": {"value": "y"}}, "out": ["z"], "in": ""}],
       "outputs": [{"value": "z"}]},
      {"name": "layer", "inputs": [{"value": "x", "kind": "tensor"}],
       "nodes": [
         {"op": "aten.linear.default", "in": "layer",
          "args": {"input": {"value": "x"}, "weight": {"parameter": "layer.weight"}, "bias": null},
          "out": ["linear"]}],
       "outputs": [{"value": "linear"}]}]})");
}

const std::vector<UnitTensors>& Units() {
  static const auto& units = *new std::vector<UnitTensors>{
      {.name = "", .buffers = {"calls"}}, {.name = "layer", .parameters = {"layer.weight"}}};
  return units;
}

absl::StatusOr<Graph> Read(const json& file, GraphUse use = GraphUse::kTraining) {
  return ReadGraph(file, Units(), {"table"}, use);
}

Tensors RunAlone(const Graph& graph, size_t unit, const Tensors& tensors,
                 const std::function<Tensors(size_t, const Tensors&)>& call) {
  ForwardContext context(Mode::kTrain, MakeGenerator(1));
  const std::string who = "model";
  return RunUnit(graph.units[unit], tensors, {who, context, call});
}

TEST(GraphTest, RunsOperatorsUnitsAndChangesBuffers) {
  const auto graph = Read(Example());
  ASSERT_TRUE(graph.ok()) << graph.status();
  const at::Tensor x = at::rand({3, 4}).sub_(0.5), weight = at::rand({2, 4}).sub_(0.5);
  const at::Tensor calls = at::ones({}, at::kLong);
  const auto call = [&](size_t unit, const Tensors& inputs) {
    EXPECT_EQ(unit, 1);
    Tensors tensors = inputs;
    tensors.push_back(weight);
    return RunAlone(*graph, unit, tensors, {});
  };
  const Tensors result = RunAlone(*graph, 0, {x, calls}, call);
  ASSERT_EQ(result.size(), 1);
  EXPECT_TRUE(result[0].equal(at::relu(at::linear(x, weight))));
  EXPECT_EQ(calls.item<int64_t>(), 2);
}

TEST(GraphTest, ComputesWithNumbers) {
  json file = Example();
  file["units"][0]["nodes"] = json::parse(R"([
    {"op": "aten.sym_size.int", "args": {"self": {"value": "x"}, "dim": 0}, "out": ["rows"]},
    {"op": "python.mul.default", "args": {"a": {"value": "rows"}, "b": 2}, "out": ["twice"]},
    {"call": "layer", "args": [{"value": "x"}], "out": ["y"]},
    {"op": "aten.mul.Tensor", "args": {"self": {"value": "y"}, "other": {"value": "twice"}},
     "out": ["scaled"]},
    {"op": "aten.view.default",
     "args": {"self": {"value": "scaled"}, "size": [{"value": "twice"}, 1]}, "out": ["z"]}])");
  const auto graph = Read(file);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto call = [](size_t, const Tensors&) { return Tensors{at::ones({3, 2})}; };
  const Tensors result = RunAlone(*graph, 0, {at::ones({3, 4}), at::ones({}, at::kLong)}, call);
  EXPECT_TRUE(result[0].equal(at::ones({6, 1}).mul(6)));
  EXPECT_EQ(result[0].scalar_type(), at::kFloat);
}

TEST(GraphTest, ScopesOfTheModelsCodeHoldForTheirNodesOnly) {
  json file = Example();
  json& nodes = file["units"][1]["nodes"];
  json frozen = nodes[0], half = nodes[0], plain = nodes[0];
  frozen["grad"] = false, frozen["out"] = {"frozen"};
  half["autocast"] = {{"enabled", true}, {"dtype", "bfloat16"}, {"cache", true}};
  half["out"] = {"half"};
  nodes = {frozen, half, plain};
  file["units"][1]["outputs"] = {{{"value", "frozen"}}, {{"value", "half"}}, {{"value", "linear"}}};
  file["units"][0]["nodes"][0]["out"] = {"y", "y2", "y3"};
  const auto graph = Read(file);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const at::Tensor weight = at::ones({2, 4}).requires_grad_(true);
  const Tensors found = RunAlone(*graph, 1, {at::rand({3, 4}), weight}, {});
  EXPECT_FALSE(found[0].requires_grad());
  EXPECT_TRUE(found[1].requires_grad());
  EXPECT_TRUE(found[2].requires_grad());
  EXPECT_EQ(found[0].scalar_type(), at::kFloat);
  EXPECT_EQ(found[1].scalar_type(), at::kBFloat16);
  EXPECT_EQ(found[2].scalar_type(), at::kFloat);
}

TEST(GraphTest, DrawsFromTheRanksGenerator) {
  json file = Example();
  file["units"][1]["nodes"].push_back(json::parse(
      R"({"op": "aten.dropout.default", "args": {"input": {"value": "linear"}, "p": 0.5,
          "train": true}, "out": ["dropped"], "in": "layer"})"));
  file["units"][1]["outputs"] = json::parse(R"([{"value": "dropped"}])");
  const auto graph = Read(file);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(graph->units[1].nodes.back().draws);
  const at::Tensor x = at::ones({8, 4}), weight = at::ones({32, 4});
  const at::Tensor first = RunAlone(*graph, 1, {x, weight}, {})[0];
  at::rand({100});  // draws from the process-wide generator
  EXPECT_TRUE(RunAlone(*graph, 1, {x, weight}, {})[0].equal(first));
  EXPECT_FALSE(first.equal(at::linear(x, weight)));
  // In evaluation the graph would give other results each time.
  EXPECT_THAT(std::string(Read(file, GraphUse::kEvaluation).status().message()),
              HasSubstr("draws random numbers in evaluation"));
}

TEST(GraphTest, RefusesWhatIsWrongByName) {
  struct Case {
    const char* name;
    std::function<void(json& file)> change;
    const char* expected;
  };
  const auto root = [](json& file) -> json& { return file["units"][0]; };
  const auto linear = [](json& file) -> json& { return file["units"][1]["nodes"][0]; };
  const std::vector<Case> cases = {
      {"a-list-that-is-very-deep",
       [&](json& f) {
         const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
         f["units"][0]["nodes"][2] = json::parse(
             R"({"op": "aten.view.default", "out": ["z"],
                 "args": {"self": {"value": "y"}, "size": )" +
             deep + "}}");
       },
       "argument 'size': expected a whole number, found array"},
      {"an-unknown-field", [&](json& f) { linear(f)["grads"] = false; },
       "has the unknown field 'grads'"},
      {"a-scope-around-a-call", [&](json& f) { root(f)["nodes"][0]["grad"] = false; },
       "has the unknown field 'grad'; known are call, args, out"},
      {"a-number-in-place", [&](json& f) { f["units"][0]["nodes"][1]["args"]["self"] = 3; },
       "changes the argument 'self' in place; expected a tensor, found a number"},
      {"a-buffer-for-a-unit-that-changes-it",
       [&](json& f) {
         linear(f) = json::parse(
             R"({"op": "aten.add_.Tensor", "out": ["linear"],
                 "args": {"self": {"value": "x"}, "other": 1, "alpha": 1}})");
         root(f)["nodes"][0]["args"] = {{{"buffer", "calls"}}};
       },
       "gives buffer 'calls' to 'layer', which changes it in place"},
      {"other-arguments-of-a-function",
       [&](json& f) {
         linear(f) = json::parse(
             R"({"op": "python.add.default", "args": {"b": 1, "c": 2}, "out": ["linear"]})");
       },
       "has the unknown field 'c'; known are a, b"},
      {"a-number-of-any-type",
       [&](json& f) {
         linear(f) = json::parse(
             R"({"op": "aten.item.default", "args": {"self": {"value": "x"}}, "out": ["linear"]})");
       },
       "returns a number of any type"},
      {"statistics-of-a-parameter",
       [&](json& f) {
         linear(f) = json::parse(R"({"op": "aten.batch_norm.default", "out": ["linear"], "args": {
           "input": {"value": "x"}, "weight": null, "bias": null,
           "running_mean": {"parameter": "layer.weight"}, "running_var": null, "training": true,
           "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": true}})");
       },
       "changes parameter 'layer.weight' in place"},
      {"format", [](json& f) { f["format"] = 3; }, "format: expected 2, found 3"},
      {"no-units", [](json& f) { f.erase("units"); }, "has no 'units'"},
      {"another-unit", [](json& f) { f["units"][1]["name"] = "other"; }, "without 'layer'"},
      {"two-units-of-a-name", [](json& f) { f["units"][1]["name"] = ""; }, "two units ''"},
      {"no-call",
       [&](json& f) {
         root(f)["nodes"][0] = root(f)["nodes"][2];
         root(f)["nodes"][0]["args"]["self"] = {{"value", "x"}};
         root(f)["nodes"][0]["out"] = {"y"};
       },
       "unit 'layer': expected one call, found 0"},
      {"two-calls",
       [&](json& f) {
         auto again = root(f)["nodes"][0];
         again["out"] = {"again"};
         root(f)["nodes"].push_back(again);
       },
       "expected one call, found 2"},
      {"call-in-a-unit", [&](json& f) { linear(f) = root(f)["nodes"][0]; },
       "calls 'layer'; expected a unit of the manifest, called by the root"},
      {"operator-of-another-library",
       [&](json& f) { linear(f)["op"] = "transformers.grouped_mm.default"; },
       "transformers.grouped_mm.default in layer: is no operator that a graph may call"},
      {"operator-that-opens-files", [&](json& f) { linear(f)["op"] = "aten.from_file.default"; },
       "is no operator that a graph may call"},
      {"operator-that-is-not-there", [&](json& f) { linear(f)["op"] = "aten.linear.neu"; },
       "this LibTorch has no such operator"},
      {"function-of-python", [&](json& f) { linear(f)["op"] = "python.exec.default"; },
       "is no function that a graph may call"},
      {"op-without-overload", [&](json& f) { linear(f)["op"] = "linear"; },
       "op: expected namespace.name.overload, found 'linear'"},
      {"argument-that-is-not-there", [&](json& f) { linear(f)["args"]["speed"] = 3; },
       "has the argument 'speed', which this LibTorch does not have"},
      {"argument-that-is-missing", [&](json& f) { linear(f)["args"].erase("weight"); },
       "has no argument 'weight', which this LibTorch needs"},
      {"argument-of-another-type", [&](json& f) { linear(f)["args"]["weight"] = "text"; },
       "argument 'weight': expected a value or a tensor of the model, found 'text'"},
      {"value-that-nobody-makes",
       [&](json& f) {
         linear(f)["args"]["input"] = {{"value", "later"}};
       },
       "uses the value 'later', which nothing before it makes"},
      {"a-cycle",
       [&](json& f) {
         linear(f)["args"]["input"] = {{"value", "linear"}};
       },
       "uses the value 'linear', which nothing before it makes"},
      {"a-value-twice", [&](json& f) { linear(f)["out"] = {"x"}; }, "makes the value 'x' again"},
      {"tensor-of-another-unit",
       [&](json& f) {
         root(f)["nodes"][2]["args"]["self"] = {{"parameter", "layer.weight"}};
       },
       "uses the parameter 'layer.weight', which the unit does not have"},
      {"constant-that-is-not-there",
       [&](json& f) {
         linear(f)["args"]["input"] = {{"constant", "other"}};
       },
       "uses the constant 'other', which constants.safetensors does not have"},
      {"parameter-in-place",
       [&](json& f) {
         linear(f) = {{"op", "aten.relu_.default"},
                      {"args", {{"self", {{"parameter", "layer.weight"}}}}},
                      {"out", {"linear"}}};
       },
       "changes parameter 'layer.weight' in place"},
      {"view-of-a-parameter-in-place",
       [&](json& f) {
         f["units"][1]["nodes"] = json::parse(R"([
           {"op": "aten.t.default", "args": {"self": {"parameter": "layer.weight"}}, "out": ["t"]},
           {"op": "aten.zero_.default", "args": {"self": {"value": "t"}}, "out": ["linear"]}])");
       },
       "changes parameter 'layer.weight' in place"},
      {"constant-in-place",
       [&](json& f) {
         linear(f) = {{"op", "aten.relu_.default"},
                      {"args", {{"self", {{"constant", "table"}}}}},
                      {"out", {"linear"}}};
       },
       "changes constant 'table' in place"},
      {"too-few-results", [&](json& f) { linear(f)["out"] = json::array(); },
       "expected 1 results, found 0"},
      {"a-number-as-result", [&](json& f) { linear(f)["out"] = {3}; },
       "expected the name of a value, found 3"},
      {"another-device",
       [&](json& f) {
         linear(f) = {{"op", "aten.arange.default"},
                      {"args", {{"end", 3}, {"device", {{"device", "cuda:7"}}}}},
                      {"out", {"linear"}}};
       },
       "argument 'device': expected the device \"worker\""},
      {"a-sparse-layout",
       [&](json& f) {
         linear(f) = {{"op", "aten.arange.default"},
                      {"args", {{"end", 3}, {"layout", {{"layout", "sparse_csr"}}}}},
                      {"out", {"linear"}}};
       },
       "layout: expected strided, found 'sparse_csr'"},
      {"more-inputs-of-a-call",
       [&](json& f) {
         root(f)["nodes"][0]["args"].push_back({{"value", "x"}});
       },
       "expected 1 arguments and 1 results, found 2 and 1"},
      {"number-as-input-of-a-unit", [&](json& f) { f["units"][1]["inputs"][0]["kind"] = "int"; },
       "expected a value of the kind of the unit's input"},
      {"output-that-nobody-makes",
       [&](json& f) {
         root(f)["outputs"] = {{{"value", "nothing"}}};
       },
       "uses the value 'nothing'"},
      {"nodes-that-are-no-list", [&](json& f) { root(f)["nodes"] = 3; },
       "nodes: expected a list, found 3"},
      {"a-node-that-is-a-text", [&](json& f) { root(f)["nodes"][0] = "x"; },
       "node 0: expected an object"},
  };
  for (const Case& one : cases) {
    json file = Example();
    one.change(file);
    const auto graph = Read(file);
    EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument) << one.name;
    EXPECT_THAT(std::string(graph.status().message()), HasSubstr(one.expected)) << one.name;
  }
}

TEST(GraphTest, ABufferKeepsItsValuesInEvaluation) {
  EXPECT_THAT(std::string(Read(Example(), GraphUse::kEvaluation).status().message()),
              HasSubstr("changes buffer 'calls' in place in evaluation, too"));
}

}  // namespace
}  // namespace muster::models::exported
