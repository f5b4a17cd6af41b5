#include "worker/models/exported/unit_reader.h"

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/status.h"
#include "torch/version.h"
#include "worker/models/allowed_operators.h"
#include "worker/models/exported/argument.h"
#include "worker/models/exported/json_fields.h"
#include "worker/models/exported/memory_uses.h"

namespace muster::models::exported {
namespace {

using nlohmann::json;
using Callable = std::map<std::string, CallableUnit>;

// More than any model has; a bound for hostile files.
constexpr size_t kMostNodes = size_t{1} << 24;

// Returns whether an operator with random numbers is switched off by its arguments, as dropout is
// in evaluation.
bool DropsNothing(const std::string& name, const json& arguments) {
  const auto is = [&](const char* argument, const json& value) {
    const auto found = arguments.find(argument);
    return found != arguments.end() && *found == value;
  };
  const bool dropout = absl::StrContains(name, "dropout");
  return is("train", false) || is("training", false) || is("dropout_p", 0.0) ||
         is("dropout", 0.0) || (dropout && is("p", 0.0));
}

// Reads the nodes of one unit.
class UnitReader {
 public:
  // `callable`: the units that this unit may call, with their indices.
  UnitReader(const UnitTensors& tensors, const std::vector<std::string>& constants, GraphUse use,
             const Callable& callable)
      : constants_(constants.begin(), constants.end()), use_(use), callable_(callable) {
    unit_.tensors = tensors;
  }

  absl::StatusOr<GraphUnit> Read(const json& file) {
    RETURN_IF_ERROR(OnlyFields(file, {"name", "inputs", "nodes", "outputs"}));
    ASSIGN_OR_RETURN(const json* inputs, List(file, "inputs"));
    for (const json& one : *inputs) {
      ASSIGN_OR_RETURN(const std::string value, Text(one, "value"));
      ASSIGN_OR_RETURN(const std::string name, Text(one, "kind"));
      ASSIGN_OR_RETURN(const ValueKind kind, KindOf(name));
      RETURN_IF_ERROR(names_.Make(value, kind).status());
      unit_.inputs.push_back(kind);
    }
    for (const std::string& name : unit_.tensors.parameters) names_.AddTensor("parameter", name);
    first_buffer_ = names_.size();
    for (const std::string& name : unit_.tensors.buffers) names_.AddTensor("buffer", name);
    first_constant_ = names_.size();
    ASSIGN_OR_RETURN(const json* nodes, List(file, "nodes"));
    RETURN_IF_ERROR(AddConstants(*nodes));
    end_of_tensors_ = names_.size();
    memory_.emplace(end_of_tensors_);
    if (nodes->size() > kMostNodes) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected at most ", kMostNodes, " nodes, found ", nodes->size()));
    }
    for (size_t i = 0; i < nodes->size(); ++i) {
      auto node = ReadNode((*nodes)[i]);
      if (!node.ok()) return Annotate(node.status(), absl::StrCat("node ", i));
      unit_.nodes.push_back(*std::move(node));
    }
    ASSIGN_OR_RETURN(const json* outputs, List(file, "outputs"));
    for (const json& one : *outputs) {
      ASSIGN_OR_RETURN(const int value, names_.Find(one));
      GraphUnit::Output output{.value = value, .kind = names_.kind(value)};
      for (const int base : memory_->Of(value)) {
        if (IsInput(base)) output.views.insert(base);
      }
      unit_.outputs.push_back(std::move(output));
    }
    unit_.frame = names_.size();
    MarkLastUses();
    return std::move(unit_);
  }

 private:
  static absl::StatusOr<ValueKind> KindOf(const std::string& name) {
    static const auto& kinds = *new std::map<std::string, ValueKind>{{"tensor", ValueKind::kTensor},
                                                                     {"int", ValueKind::kInt},
                                                                     {"float", ValueKind::kFloat},
                                                                     {"bool", ValueKind::kBool}};
    const auto found = kinds.find(name);
    if (found != kinds.end()) return found->second;
    return absl::InvalidArgumentError(
        absl::StrCat("kind: expected tensor, int, float or bool, found '", Shown(name), "'"));
  }

  // Gives each constant that a node uses a place in the frame.
  absl::Status AddConstants(const json& nodes) {
    std::vector<const json*> waiting;
    for (const json& node : nodes) {
      if (node.is_object() && node.contains("args")) waiting.push_back(&node["args"]);
    }
    std::set<std::string> found;
    while (!waiting.empty()) {
      const json& one = *waiting.back();
      waiting.pop_back();
      if (one.is_object() && one.size() == 1 && one.contains("constant")) {
        ASSIGN_OR_RETURN(const std::string name, Text(one, "constant"));
        if (!constants_.contains(name)) {
          return absl::InvalidArgumentError(absl::StrCat(
              "uses the constant '", Shown(name), "', which constants.safetensors does not have"));
        }
        found.insert(name);
      } else if (one.is_structured()) {
        for (const json& inner : one) waiting.push_back(&inner);
      }
    }
    for (const std::string& name : found) {
      names_.AddTensor("constant", name);
      unit_.constants.push_back(name);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Node> ReadNode(const json& file) {
    if (!file.is_object()) return Expected("an object", file);
    if (file.contains("call")) return ReadCall(file);
    RETURN_IF_ERROR(OnlyFields(file, {"op", "args", "out", "in", "grad", "autocast"}));
    ASSIGN_OR_RETURN(const std::string op, Text(file, "op"));
    const std::vector<std::string> parts = absl::StrSplit(op, '.');
    if (parts.size() != 3) {
      return absl::InvalidArgumentError(
          absl::StrCat("op: expected namespace.name.overload, found '", Shown(op), "'"));
    }
    std::string where;
    if (file.contains("in")) {
      ASSIGN_OR_RETURN(where, Text(file, "in"));
    }
    const std::string place =
        where.empty() ? Shown(op) : absl::StrCat(Shown(op), " in ", Shown(where));
    auto node = parts[0] == "python" ? ReadPython(file, parts[1]) : ReadOperator(file, parts);
    if (!node.ok()) return Annotate(node.status(), place);
    node->place = place;
    ASSIGN_OR_RETURN(node->scope, ReadScope(file));
    return node;
  }

  absl::StatusOr<Node> ReadCall(const json& file) {
    RETURN_IF_ERROR(OnlyFields(file, {"call", "args", "out"}));
    ASSIGN_OR_RETURN(const std::string name, Text(file, "call"));
    const auto found = callable_.find(name);
    if (found == callable_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "calls '", Shown(name), "'; expected a unit of the manifest, called by the root"));
    }
    const GraphUnit& unit = *found->second.unit;
    Node node;
    node.call = found->second.index;
    node.place = absl::StrCat("call of ", Shown(name));
    ASSIGN_OR_RETURN(const json* arguments, List(file, "args"));
    ASSIGN_OR_RETURN(const json* out, List(file, "out"));
    if (arguments->size() != unit.inputs.size() || out->size() != unit.outputs.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          node.place, ": expected ", unit.inputs.size(), " arguments and ", unit.outputs.size(),
          " results, found ", arguments->size(), " and ", out->size()));
    }
    for (size_t i = 0; i < arguments->size(); ++i) {
      Argument argument{.kind = Argument::Kind::kValue};
      ASSIGN_OR_RETURN(argument.value, names_.Find((*arguments)[i]));
      if (names_.kind(argument.value) != unit.inputs[i]) {
        return Expected("a value of the kind of the unit's input", (*arguments)[i]);
      }
      if (unit.written_inputs.contains(static_cast<int>(i))) {
        RETURN_IF_ERROR(Lend(memory_->Of(argument.value), name));
      }
      node.arguments.push_back(std::move(argument));
    }
    for (size_t i = 0; i < out->size(); ++i) {
      const GraphUnit::Output& output = unit.outputs[i];
      ASSIGN_OR_RETURN(Result result, ReadResult((*out)[i], output.kind, /*list=*/false));
      for (const int input : output.views) {
        memory_->AddView(result.values[0], memory_->Of(node.arguments[input].value));
      }
      node.results.push_back(std::move(result));
    }
    return node;
  }

  absl::StatusOr<Node> ReadPython(const json& file, const std::string& name) {
    Node node;
    node.function = PythonFunctionOf(name);
    if (!node.function.has_value()) {
      return absl::InvalidArgumentError("is no function that a graph may call");
    }
    ASSIGN_OR_RETURN(const json* arguments, Object(file, "args"));
    RETURN_IF_ERROR(OnlyFields(*arguments, {"a", "b"}));
    if (arguments->size() != ArgumentsOf(*node.function) || !arguments->contains("a")) {
      return absl::InvalidArgumentError(absl::StrCat("expected ", ArgumentsOf(*node.function),
                                                     " arguments, found ", arguments->size()));
    }
    for (const auto& [key, value] : arguments->items()) {
      ASSIGN_OR_RETURN(Argument argument, ReadNumber(value, names_));
      node.arguments.push_back(std::move(argument));
    }
    ASSIGN_OR_RETURN(const json* out, List(file, "out"));
    if (out->size() != 1) return Expected("one result", *out);
    // The kind of the result follows from those of the arguments.
    std::vector<c10::IValue> samples;
    for (const Argument& one : node.arguments) {
      samples.push_back(one.kind == Argument::Kind::kConstant ? one.constant
                                                              : Sample(names_.kind(one.value)));
    }
    const ValueKind kind = ResultKind(*node.function, samples);
    ASSIGN_OR_RETURN(const Result result, ReadResult((*out)[0], kind, /*list=*/false));
    node.results.push_back(result);
    return node;
  }

  static c10::IValue Sample(ValueKind kind) {
    if (kind == ValueKind::kFloat) return 1.0;
    if (kind == ValueKind::kBool) return true;
    return int64_t{1};
  }

  static ValueKind ResultKind(PythonFunction function, const std::vector<c10::IValue>& samples) {
    const auto result = CallPython(function, samples);
    if (!result.ok()) return ValueKind::kInt;  // the call itself will be refused
    return result->isDouble() ? ValueKind::kFloat
           : result->isBool() ? ValueKind::kBool
                              : ValueKind::kInt;
  }

  absl::StatusOr<Node> ReadOperator(const json& file, const std::vector<std::string>& parts) {
    const std::string name = absl::StrCat(parts[0], "::", parts[1]);
    if (!IsAllowedOperator(name)) {
      return absl::InvalidArgumentError(
          "is no operator that a graph may call; allowed: operators of torch that compute with "
          "tensors");
    }
    Node node;
    const std::string overload = parts[2] == "default" ? "" : parts[2];
    node.op = c10::Dispatcher::singleton().findSchema({name, overload});
    if (!node.op.has_value() || !node.op->hasSchema()) {
      return absl::InvalidArgumentError(
          "this LibTorch has no such operator; export the model again with the worker's "
          "torch, " TORCH_VERSION);
    }
    const c10::FunctionSchema& schema = node.op->schema();
    ASSIGN_OR_RETURN(const json* arguments, Object(file, "args"));
    node.draws =
        node.op->hasTag(at::Tag::nondeterministic_seeded) && !DropsNothing(name, *arguments);
    if (node.draws && use_ == GraphUse::kEvaluation) {
      return absl::InvalidArgumentError("draws random numbers in evaluation, too");
    }
    size_t used = 0;
    for (const c10::Argument& one : schema.arguments()) {
      const auto given = arguments->find(one.name());
      if (given == arguments->end()) {
        if (!one.default_value().has_value()) {
          return absl::InvalidArgumentError(
              absl::StrCat("has no argument '", one.name(), "', which this LibTorch needs"));
        }
        node.arguments.push_back({.constant = *one.default_value()});
        continue;
      }
      ++used;
      auto argument = ReadArgument(*given, *one.real_type(), names_);
      if (!argument.ok()) {
        return Annotate(argument.status(), absl::StrCat("argument '", one.name(), "'"));
      }
      if (argument->kind == Argument::Kind::kGenerator && !node.draws) {
        argument->kind = Argument::Kind::kConstant;  // none
      }
      node.arguments.push_back(*std::move(argument));
    }
    if (used != arguments->size()) {
      for (const auto& [key, value] : arguments->items()) {
        if (schema.argumentIndexWithName(key).has_value()) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("has the argument '", Shown(key),
                         "', which this LibTorch does not have; export the model again with the "
                         "worker's torch, " TORCH_VERSION));
      }
    }
    RETURN_IF_ERROR(CheckWritesTensors(schema, node));
    RETURN_IF_ERROR(Write(memory_->WrittenBy(schema, node)));
    RETURN_IF_ERROR(ReadResults(file, schema, &node));
    memory_->AddViews(schema, node);
    return node;
  }

  absl::Status ReadResults(const json& file, const c10::FunctionSchema& schema, Node* node) {
    ASSIGN_OR_RETURN(const json* out, List(file, "out"));
    if (out->size() != schema.returns().size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected ", schema.returns().size(), " results, found ", out->size()));
    }
    for (size_t i = 0; i < out->size(); ++i) {
      const c10::Type& type = *schema.returns()[i].type();
      ValueKind kind = ValueKind::kTensor;
      if (type.kind() == c10::TypeKind::IntType) kind = ValueKind::kInt;
      if (type.kind() == c10::TypeKind::SymIntType) kind = ValueKind::kInt;
      if (type.kind() == c10::TypeKind::FloatType) kind = ValueKind::kFloat;
      if (type.kind() == c10::TypeKind::BoolType) kind = ValueKind::kBool;
      if (type.kind() == c10::TypeKind::NumberType) {
        return absl::InvalidArgumentError("returns a number of any type, which no graph can use");
      }
      const bool list = type.kind() == c10::TypeKind::ListType;
      ASSIGN_OR_RETURN(Result result, ReadResult((*out)[i], kind, list));
      node->results.push_back(std::move(result));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Result> ReadResult(const json& file, ValueKind kind, bool list) {
    Result result{.is_list = list};
    const auto add = [&](const json& one) -> absl::Status {
      int value = Element::kNothing;
      if (!one.is_null()) {
        if (!one.is_string()) return Expected("the name of a value", one);
        ASSIGN_OR_RETURN(value, names_.Make(one.get<std::string>(), kind));
      }
      result.values.push_back(value);
      return absl::OkStatus();
    };
    if (!list) {
      RETURN_IF_ERROR(add(file));
      return result;
    }
    if (!file.is_array()) return Expected("a list of names", file);
    for (const json& one : file) RETURN_IF_ERROR(add(one));
    return result;
  }

  bool IsInput(int value) const { return value < static_cast<int>(unit_.inputs.size()); }

  // Checks memory that a call gives to a unit that changes it. A repeated forward of the unit
  // restores only the unit's own buffers.
  absl::Status Lend(const std::set<int>& memory, const std::string& unit) {
    for (const int value : memory) {
      if (value < first_buffer_ || value >= first_constant_) continue;
      return absl::InvalidArgumentError(absl::StrCat("gives ", names_.Describe(value), " to '",
                                                     Shown(unit), "', which changes it in place"));
    }
    return Write(memory);
  }

  // A number that is changed in place would keep its value for the next forward.
  static absl::Status CheckWritesTensors(const c10::FunctionSchema& schema, const Node& node) {
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
      const Argument::Kind kind = node.arguments[i].kind;
      if (alias == nullptr || !alias->isWrite()) continue;
      if (kind == Argument::Kind::kValue || kind == Argument::Kind::kTensors) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("changes the argument '", schema.arguments()[i].name(),
                       "' in place; expected a tensor, found a number"));
    }
    return absl::OkStatus();
  }

  // Notes that a node changes this memory in place.
  absl::Status Write(const std::set<int>& memory) {
    for (const int value : memory) {
      const bool buffer = value >= first_buffer_ && value < first_constant_;
      if (IsInput(value)) {
        unit_.written_inputs.insert(value);
      } else if (!buffer || use_ == GraphUse::kEvaluation) {
        return absl::InvalidArgumentError(absl::StrCat(
            "changes ", names_.Describe(value), " in place", buffer ? " in evaluation, too" : ""));
      }
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<Scope> ReadScope(const json& file) {
    Scope scope;
    if (file.contains("grad")) {
      ASSIGN_OR_RETURN(scope.computes_gradients, Boolean(file, "grad"));
    }
    if (file.contains("autocast")) {
      ASSIGN_OR_RETURN(const json* autocast, Object(file, "autocast"));
      Scope::Autocast made;
      ASSIGN_OR_RETURN(made.enabled, Boolean(*autocast, "enabled"));
      ASSIGN_OR_RETURN(made.keeps_casts, Boolean(*autocast, "cache"));
      if (autocast->contains("dtype") && !(*autocast)["dtype"].is_null()) {
        ASSIGN_OR_RETURN(const std::string name, Text(*autocast, "dtype"));
        ASSIGN_OR_RETURN(made.type, TypeOf(name));
      }
      scope.autocast = made;
    }
    return scope;
  }

  void MarkLastUses() {
    std::set<int> used;
    for (const GraphUnit::Output& one : unit_.outputs) used.insert(one.value);
    for (auto node = unit_.nodes.rbegin(); node != unit_.nodes.rend(); ++node) {
      std::set<int> ends;
      const auto note = [&](int value) {
        if ((value >= end_of_tensors_ || IsInput(value)) && !used.contains(value)) {
          ends.insert(value);
        }
      };
      for (const Argument& one : node->arguments) ForValues(one, note);
      for (const Result& one : node->results) {
        for (const int value : one.values) {
          if (value >= 0) note(value);
        }
      }
      node->last_uses.assign(ends.begin(), ends.end());
      used.merge(ends);
    }
  }

  GraphUnit unit_;
  Names names_;
  std::optional<MemoryUses> memory_;  // once all tensors have their places
  int first_buffer_ = 0;
  int first_constant_ = 0;
  int end_of_tensors_ = 0;
  const std::set<std::string> constants_;
  const GraphUse use_;
  const Callable& callable_;
};

}  // namespace

absl::StatusOr<GraphUnit> ReadUnit(const json& file, const UnitTensors& tensors,
                                   const std::vector<std::string>& constants, GraphUse use,
                                   const std::map<std::string, CallableUnit>& callable) {
  return UnitReader(tensors, constants, use, callable).Read(file);
}

}  // namespace muster::models::exported
