// The functions of Python on numbers that a graph may call, for example to compute a shape from the
// number of samples.
#ifndef MUSTER_WORKER_MODELS_EXPORTED_PYTHON_FUNCTION_H_
#define MUSTER_WORKER_MODELS_EXPORTED_PYTHON_FUNCTION_H_

#include <optional>
#include <span>
#include <string>

#include "ATen/core/ivalue.h"
#include "absl/status/statusor.h"

namespace muster::models::exported {

enum class PythonFunction {
  kAdd,
  kSub,
  kMul,
  kFloordiv,
  kTruediv,
  kMod,
  kPow,
  kNeg,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kAnd,
  kOr,
  kNot,
  kMax,
  kMin,
  kInt,
  kFloat,
  kCeil,
  kFloor,
};

// Returns the function of this name: "floordiv".
std::optional<PythonFunction> PythonFunctionOf(const std::string& name);

// The number of its arguments: 1 or 2.
size_t ArgumentsOf(PythonFunction function);

// Returns what Python returns for these numbers and truth values. INVALID_ARGUMENT: a division by
// zero, a number of another kind, or a result that is no 64-bit number.
absl::StatusOr<c10::IValue> CallPython(PythonFunction function,
                                       std::span<const c10::IValue> arguments);

}  // namespace muster::models::exported

#endif  // MUSTER_WORKER_MODELS_EXPORTED_PYTHON_FUNCTION_H_
