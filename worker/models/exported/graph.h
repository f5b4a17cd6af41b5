// The graphs of an exported model (docs/reference/exported-format.md): which operators run, with
// which arguments, in which units. A graph is data. Reading it runs nothing, and resolves each
// operator and each argument against this LibTorch, once.
#ifndef MUSTER_WORKER_MODELS_EXPORTED_GRAPH_H_
#define MUSTER_WORKER_MODELS_EXPORTED_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "worker/models/exported/python_function.h"

namespace muster::models::exported {

// The tensors of a unit, by name. Each list is in the order of the manifest.
struct UnitTensors {
  std::string name;  // of the unit; empty: the root
  std::vector<std::string> parameters;
  std::vector<std::string> buffers;
};

enum class ValueKind { kTensor, kInt, kFloat, kBool };

// A value of a frame, or an integer. As an element of a list of optional tensors, kNothing is no
// tensor.
struct Element {
  static constexpr int kNothing = -1;
  int value = kNothing;  // index in the frame
  int64_t integer = 0;   // only in lists of integers, if there is no value
};

// One argument of an operator.
struct Argument {
  enum class Kind {
    kConstant,
    kValue,            // a value of the frame
    kNumberAsTensor,   // a number of the frame, where the operator takes a tensor
    kTensors,          // a list of values
    kOptionalTensors,  // a list of values, and of nothing
    kIntegers,         // a list of values and integers
    kDevice,           // the device of the rank
    kGenerator,        // the generator of the rank
  };
  Kind kind = Kind::kConstant;
  c10::IValue constant;
  int value = Element::kNothing;
  std::vector<Element> elements;
};

// A scope of torch.no_grad, torch.enable_grad or torch.autocast in the model's code.
struct Scope {
  struct Autocast {
    bool enabled = false;
    bool keeps_casts = true;
    std::optional<c10::ScalarType> type;

    bool operator==(const Autocast&) const = default;
  };
  std::optional<bool> computes_gradients;
  std::optional<Autocast> autocast;

  bool operator==(const Scope&) const = default;
};

// A result of an operator: one value, or the values of a list. kNothing: nobody uses the value.
struct Result {
  bool is_list = false;
  std::vector<int> values;
};

// One step of a unit. Exactly one of `op`, `function` and `call` is set.
struct Node {
  std::optional<c10::OperatorHandle> op;
  std::optional<PythonFunction> function;
  std::optional<size_t> call;  // index of a unit in Graph::units
  std::vector<Argument> arguments;
  std::vector<Result> results;
  // Values that no later node uses.
  std::vector<int> last_uses;
  Scope scope;
  // Draws random numbers, from the process-wide generator unless an argument is the rank's.
  bool draws = false;
  std::string place;  // "aten.linear.default in encoder.layers.0"
};

// The frame of a unit's forward has its inputs, parameters, buffers and constants, in this order,
// and then the results of its nodes.
struct GraphUnit {
  UnitTensors tensors;
  std::vector<ValueKind> inputs;
  std::vector<std::string> constants;  // those that its nodes use
  std::vector<Node> nodes;
  struct Output {
    int value = 0;
    ValueKind kind = ValueKind::kTensor;
    std::set<int> views;  // inputs whose memory it may use
  };
  std::vector<Output> outputs;
  std::set<int> written_inputs;  // changed in place
  size_t frame = 0;              // number of values
};

struct Graph {
  std::vector<GraphUnit> units;  // the root first
};

// The version of the format of the folder's JSON files. Equal to FORMAT of muster.export.
inline constexpr int64_t kFormat = 2;
// INVALID_ARGUMENT if the file has another format.
absl::Status CheckFormat(const nlohmann::json& file);

// Says what a graph may do. A graph for evaluation draws no random numbers and changes no buffer in
// place.
enum class GraphUse { kTraining, kEvaluation };

// Reads the contents of train.json or evaluate.json. `units`: those of the manifest, the root
// first. `constants`: the names of all constants. INVALID_ARGUMENT with the place in the file, what
// was expected and what was found:
// - another format, other units than the manifest's, a unit that the root does not call once
// - an operator that this LibTorch does not have, or that is not allowed (allowed_operators.h)
// - arguments that the operator does not have, or has with other types
// - a value that no earlier node made, a name that is made twice, tensors of another unit
// - parameters and constants that are changed in place; buffers, by a unit that does not have them
absl::StatusOr<Graph> ReadGraph(const nlohmann::json& file, const std::vector<UnitTensors>& units,
                                const std::vector<std::string>& constants, GraphUse use);

}  // namespace muster::models::exported

#endif  // MUSTER_WORKER_MODELS_EXPORTED_GRAPH_H_
