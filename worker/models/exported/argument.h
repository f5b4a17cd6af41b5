// The arguments of a graph's operators, resolved against the types of the operator's schema.
#ifndef MUSTER_WORKER_MODELS_EXPORTED_ARGUMENT_H_
#define MUSTER_WORKER_MODELS_EXPORTED_ARGUMENT_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/jit_type.h"
#include "absl/status/statusor.h"
#include "c10/core/Scalar.h"
#include "c10/core/ScalarType.h"
#include "nlohmann/json.hpp"
#include "worker/models/exported/graph.h"

namespace muster::models::exported {

// The values of a frame while a unit is read, by name. Errors: INVALID_ARGUMENT.
class Names {
 public:
  // Adds a new value, which must not exist yet.
  absl::StatusOr<int> Make(const std::string& name, ValueKind kind);
  // Adds a tensor of the model. what: "parameter", "buffer" or "constant".
  void AddTensor(const std::string& what, const std::string& name);

  // Returns the value that an argument names: {"value": NAME} or {"parameter": NAME}, ...
  absl::StatusOr<int> Find(const nlohmann::json& argument) const;

  int size() const { return static_cast<int>(values_.size()); }
  ValueKind kind(int value) const { return values_[value].kind; }
  // Returns "parameter 'wte.weight'".
  std::string Describe(int value) const;

 private:
  struct Value {
    std::string what;
    std::string name;
    ValueKind kind;
  };
  std::vector<Value> values_;
  std::map<std::pair<std::string, std::string>, int> by_name_;
};

// Returns the type "float32".
absl::StatusOr<c10::ScalarType> TypeOf(const std::string& name);

// Returns a number as a tensor, as Python does for an operator that takes a tensor: the number does
// not decide on the type of the result.
at::Tensor AsTensor(const c10::Scalar& number);

// Reads an argument of this type. A list of numbers may be one number.
absl::StatusOr<Argument> ReadArgument(const nlohmann::json& file, const c10::Type& type,
                                      const Names& names);

// Reads an argument of a function of Python: a number, a truth value, or a value that is one.
absl::StatusOr<Argument> ReadNumber(const nlohmann::json& file, const Names& names);

}  // namespace muster::models::exported

#endif  // MUSTER_WORKER_MODELS_EXPORTED_ARGUMENT_H_
