// The JSON files of an exported model: {"manifest": ..., "graph": ...}.
#include "common/safetensors/strict_json.h"
#include "tests/fuzz/target.h"
#include "worker/models/exported/graph.h"
#include "worker/models/exported/input.h"
#include "worker/models/exported/manifest.h"

using muster::fuzz::Require;
using namespace muster::models::exported;

namespace {

void RequireInFrame(const GraphUnit& unit, int value, size_t made) {
  Require(value >= 0 && static_cast<size_t>(value) < made, "a value was made before its use");
  Require(made <= unit.frame, "the frame holds every value");
}

void RequireArgument(const GraphUnit& unit, const Argument& argument, size_t made) {
  if (argument.kind == Argument::Kind::kValue || argument.kind == Argument::Kind::kNumberAsTensor) {
    RequireInFrame(unit, argument.value, made);
  }
  for (const Element& element : argument.elements) {
    if (element.value != Element::kNothing) RequireInFrame(unit, element.value, made);
  }
}

void RequireUnit(const Graph& graph, const GraphUnit& unit) {
  size_t made = unit.inputs.size() + unit.tensors.parameters.size() + unit.tensors.buffers.size() +
                unit.constants.size();
  for (const Node& node : unit.nodes) {
    Require(node.op.has_value() + node.function.has_value() + node.call.has_value() == 1,
            "a node is one call");
    Require(!node.call.has_value() || *node.call < graph.units.size(), "a unit exists");
    for (const Argument& argument : node.arguments) RequireArgument(unit, argument, made);
    for (const Result& result : node.results) {
      for (const int value : result.values) {
        if (value != Element::kNothing) ++made;
      }
    }
    Require(made <= unit.frame, "the frame holds every value");
    for (const int value : node.last_uses) RequireInFrame(unit, value, made);
  }
  for (const GraphUnit::Output& output : unit.outputs) RequireInFrame(unit, output.value, made);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = muster::safetensors::ParseStrictJson(data, size);
  if (!file.ok() || !file->is_object() || !file->contains("manifest") || !file->contains("graph")) {
    return 0;
  }
  const auto manifest = ReadManifest((*file)["manifest"]);
  if (!manifest.ok()) return 0;
  const auto input = InputOf(*manifest);
  if (input.ok()) Require(input->TargetsOfSample() >= 0, "a sample has a number of targets");
  for (const GraphUse use : {GraphUse::kTraining, GraphUse::kEvaluation}) {
    const auto graph = ReadGraph((*file)["graph"], manifest->units, {"table"}, use);
    if (!graph.ok()) continue;
    Require(graph->units.size() == manifest->units.size(), "the graph has the manifest's units");
    for (const GraphUnit& unit : graph->units) RequireUnit(*graph, unit);
  }
  return 0;
}
