#include "worker/models/exported/python_function.h"

#include <array>
#include <cmath>
#include <compare>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"

namespace muster::models::exported {
namespace {

using Function = PythonFunction;

struct Named {
  const char* name;
  Function function;
  size_t arguments;
};

constexpr std::array kFunctions = {
    Named{"add", Function::kAdd, 2},         Named{"sub", Function::kSub, 2},
    Named{"mul", Function::kMul, 2},         Named{"floordiv", Function::kFloordiv, 2},
    Named{"truediv", Function::kTruediv, 2}, Named{"mod", Function::kMod, 2},
    Named{"pow", Function::kPow, 2},         Named{"neg", Function::kNeg, 1},
    Named{"eq", Function::kEq, 2},           Named{"ne", Function::kNe, 2},
    Named{"lt", Function::kLt, 2},           Named{"le", Function::kLe, 2},
    Named{"gt", Function::kGt, 2},           Named{"ge", Function::kGe, 2},
    Named{"and", Function::kAnd, 2},         Named{"or", Function::kOr, 2},
    Named{"not", Function::kNot, 1},         Named{"max", Function::kMax, 2},
    Named{"min", Function::kMin, 2},         Named{"int", Function::kInt, 1},
    Named{"float", Function::kFloat, 1},     Named{"ceil", Function::kCeil, 1},
    Named{"floor", Function::kFloor, 1},
};

const Named& Find(Function function) { return kFunctions[static_cast<size_t>(function)]; }

absl::Status Wrong(Function function, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("python.", Find(function).name, ": ", what));
}

bool IsNumber(const c10::IValue& value) {
  return value.isInt() || value.isDouble() || value.isBool();
}

int64_t AsInteger(const c10::IValue& value) {
  return value.isBool() ? static_cast<int64_t>(value.toBool()) : value.toInt();
}

double AsNumber(const c10::IValue& value) {
  return value.isDouble() ? value.toDouble() : static_cast<double>(AsInteger(value));
}

bool AsTruth(const c10::IValue& value) {
  return value.isDouble() ? value.toDouble() != 0 : AsInteger(value) != 0;
}

absl::StatusOr<c10::IValue> FromDouble(Function function, double value) {
  // The limits of int64, as double.
  if (!(value >= -9223372036854775808.0 && value < 9223372036854775808.0)) {
    return Wrong(function, absl::StrCat("expected a result that int64 can hold, found ", value));
  }
  return c10::IValue(static_cast<int64_t>(value));
}

absl::StatusOr<c10::IValue> Power(int64_t base, int64_t exponent) {
  if (exponent < 0) return c10::IValue(std::pow(base, exponent));
  int64_t result = 1;
  for (int64_t i = 0; i < exponent && result != 0 && (result != 1 || base != 1); ++i) {
    if (base == -1) return c10::IValue(int64_t{exponent % 2 == 0 ? 1 : -1});
    if (__builtin_mul_overflow(result, base, &result)) {
      return Wrong(Function::kPow, "expected a result that int64 can hold");
    }
  }
  return c10::IValue(result);
}

absl::StatusOr<c10::IValue> OfIntegers(Function function, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (function) {
    case Function::kAdd:
      if (__builtin_add_overflow(a, b, &result)) break;
      return c10::IValue(result);
    case Function::kSub:
      if (__builtin_sub_overflow(a, b, &result)) break;
      return c10::IValue(result);
    case Function::kMul:
      if (__builtin_mul_overflow(a, b, &result)) break;
      return c10::IValue(result);
    case Function::kFloordiv:
    case Function::kMod: {
      if (b == 0) return Wrong(function, "expected a divisor that is not 0");
      // The processor cannot divide the smallest number by -1.
      if (b == -1 && function == Function::kMod) return c10::IValue(int64_t{0});
      if (b == -1 && __builtin_sub_overflow(int64_t{0}, a, &result)) break;
      if (b == -1) return c10::IValue(result);
      // Python rounds down, C++ towards 0.
      const bool down = a % b != 0 && (a < 0) != (b < 0);
      return c10::IValue(function == Function::kMod ? a % b + (down ? b : 0)
                                                    : a / b - (down ? 1 : 0));
    }
    case Function::kPow:
      return Power(a, b);
    case Function::kNeg:
      if (__builtin_sub_overflow(int64_t{0}, a, &result)) break;
      return c10::IValue(result);
    default:
      break;
  }
  return Wrong(function, "expected a result that int64 can hold");
}

absl::StatusOr<c10::IValue> OfNumbers(Function function, double a, double b) {
  switch (function) {
    case Function::kAdd:
      return c10::IValue(a + b);
    case Function::kSub:
      return c10::IValue(a - b);
    case Function::kMul:
      return c10::IValue(a * b);
    case Function::kPow:
      return c10::IValue(std::pow(a, b));
    case Function::kFloordiv:
    case Function::kMod: {
      if (b == 0) return Wrong(function, "expected a divisor that is not 0");
      const double rest = std::fmod(a, b);
      const bool down = rest != 0 && (rest < 0) != (b < 0);
      if (function == Function::kMod) return c10::IValue(rest + (down ? b : 0));
      return c10::IValue(std::round((a - rest) / b) - (down ? 1 : 0));
    }
    default:
      return Wrong(function, "expected whole numbers");
  }
}

}  // namespace

std::optional<PythonFunction> PythonFunctionOf(const std::string& name) {
  for (const Named& one : kFunctions) {
    if (name == one.name) return one.function;
  }
  return std::nullopt;
}

size_t ArgumentsOf(PythonFunction function) { return Find(function).arguments; }

absl::StatusOr<c10::IValue> CallPython(PythonFunction function,
                                       std::span<const c10::IValue> arguments) {
  for (const c10::IValue& one : arguments) {
    if (!IsNumber(one)) {
      return Wrong(function, absl::StrCat("expected numbers, found ", one.tagKind()));
    }
  }
  const c10::IValue& a = arguments[0];
  const c10::IValue& b = arguments.back();
  const bool integers = !a.isDouble() && !b.isDouble();
  // Integers of 64 bits are compared exactly; a double loses the last bits of large ones.
  const auto compare = [&]() -> std::partial_ordering {
    if (integers) return AsInteger(a) <=> AsInteger(b);
    return AsNumber(a) <=> AsNumber(b);
  };
  switch (function) {
    case Function::kEq:
      return c10::IValue(compare() == 0);
    case Function::kNe:
      return c10::IValue(compare() != 0);
    case Function::kLt:
      return c10::IValue(compare() < 0);
    case Function::kLe:
      return c10::IValue(compare() <= 0);
    case Function::kGt:
      return c10::IValue(compare() > 0);
    case Function::kGe:
      return c10::IValue(compare() >= 0);
    case Function::kMax:
      return compare() < 0 ? b : a;
    case Function::kMin:
      return compare() > 0 ? b : a;
    case Function::kNot:
      return c10::IValue(!AsTruth(a));
    case Function::kFloat:
      return c10::IValue(AsNumber(a));
    case Function::kTruediv:
      if (AsNumber(b) == 0) return Wrong(function, "expected a divisor that is not 0");
      return c10::IValue(AsNumber(a) / AsNumber(b));
    case Function::kInt:
      if (integers) return c10::IValue(AsInteger(a));
      return FromDouble(function, std::trunc(AsNumber(a)));
    case Function::kCeil:
      return FromDouble(function, std::ceil(AsNumber(a)));
    case Function::kFloor:
      return FromDouble(function, std::floor(AsNumber(a)));
    case Function::kNeg:
      if (!integers) return c10::IValue(-AsNumber(a));
      return OfIntegers(Function::kNeg, AsInteger(a), 0);
    case Function::kAnd:
      if (a.isBool() && b.isBool()) return c10::IValue(a.toBool() && b.toBool());
      if (integers) return c10::IValue(AsInteger(a) & AsInteger(b));
      return Wrong(function, "expected whole numbers");
    case Function::kOr:
      if (a.isBool() && b.isBool()) return c10::IValue(a.toBool() || b.toBool());
      if (integers) return c10::IValue(AsInteger(a) | AsInteger(b));
      return Wrong(function, "expected whole numbers");
    default:
      return integers ? OfIntegers(function, AsInteger(a), AsInteger(b))
                      : OfNumbers(function, AsNumber(a), AsNumber(b));
  }
}

}  // namespace muster::models::exported
