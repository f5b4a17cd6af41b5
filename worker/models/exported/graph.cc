#include "worker/models/exported/graph.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "worker/models/exported/json_fields.h"
#include "worker/models/exported/unit_reader.h"

namespace muster::models::exported {
namespace {

using nlohmann::json;

// Checks that the root calls each unit once and has one output.
absl::Status CheckRoot(const Graph& graph) {
  std::vector<int> calls(graph.units.size());
  for (const Node& node : graph.units[0].nodes) {
    if (node.call.has_value()) ++calls[*node.call];
  }
  for (size_t i = 1; i < calls.size(); ++i) {
    if (calls[i] == 1) continue;
    return absl::InvalidArgumentError(absl::StrCat("unit '", graph.units[i].tensors.name,
                                                   "': expected one call, found ", calls[i]));
  }
  if (graph.units[0].outputs.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected one output of the root, found ", graph.units[0].outputs.size()));
  }
  if (graph.units[0].outputs[0].kind != ValueKind::kTensor) {
    return absl::InvalidArgumentError("expected a tensor as the output of the root");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFormat(const json& file) {
  ASSIGN_OR_RETURN(const int64_t format, Integer(file, "format"));
  if (format == kFormat) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("format: expected ", kFormat, ", found ", format,
                   "; export the model again with the muster.export of the worker's version"));
}

absl::StatusOr<Graph> ReadGraph(const json& file, const std::vector<UnitTensors>& units,
                                const std::vector<std::string>& constants, GraphUse use) {
  RETURN_IF_ERROR(OnlyFields(file, {"format", "torch", "units"}));
  RETURN_IF_ERROR(CheckFormat(file));
  ASSIGN_OR_RETURN(const json* list, List(file, "units"));
  std::map<std::string, const json*> by_name;
  for (const json& one : *list) {
    ASSIGN_OR_RETURN(const std::string name, Text(one, "name"));
    if (!by_name.emplace(name, &one).second) {
      return absl::InvalidArgumentError(absl::StrCat("has two units '", Shown(name), "'"));
    }
  }
  Graph graph;
  graph.units.resize(units.size());
  std::map<std::string, CallableUnit> callable;
  // The root comes last, because it calls the others.
  for (size_t i = units.size(); i-- > 0;) {
    const std::string& name = units[i].name;
    const auto found = by_name.find(name);
    if (found == by_name.end() || by_name.size() != units.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "expected the ", units.size(), " units of the manifest, found ", by_name.size(),
          found == by_name.end() ? " without '" : " with '", Shown(name), "'"));
    }
    const std::map<std::string, CallableUnit> none;
    auto unit = ReadUnit(*found->second, units[i], constants, use, i == 0 ? callable : none);
    if (!unit.ok()) return Annotate(unit.status(), absl::StrCat("unit '", Shown(name), "'"));
    graph.units[i] = *std::move(unit);
    callable[name] = {i, &graph.units[i]};
  }
  RETURN_IF_ERROR(CheckRoot(graph));
  return graph;
}

}  // namespace muster::models::exported
