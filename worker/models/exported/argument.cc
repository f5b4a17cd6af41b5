#include "worker/models/exported/argument.h"

#include <cmath>
#include <limits>
#include <optional>

#include "ATen/core/List.h"
#include "ATen/ops/scalar_tensor.h"
#include "absl/strings/str_cat.h"
#include "c10/core/Layout.h"
#include "c10/core/MemoryFormat.h"
#include "common/status/status.h"
#include "worker/models/exported/json_fields.h"

namespace muster::models::exported {
namespace {

using c10::TypeKind;
using nlohmann::json;

bool IsReference(const json& file) {
  return file.is_object() && file.size() == 1 &&
         (file.contains("value") || file.contains("parameter") || file.contains("buffer") ||
          file.contains("constant"));
}

std::optional<double> FloatOf(const json& file) {
  if (file.is_number()) return file.get<double>();
  if (!file.is_object() || file.size() != 1 || !file.contains("float")) return std::nullopt;
  const json& text = file["float"];
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

std::optional<int64_t> IntegerOf(const json& file) {
  if (!file.is_number_integer()) return std::nullopt;
  if (file.is_number_unsigned() && file.get<uint64_t>() > INT64_MAX) return std::nullopt;
  return file.get<int64_t>();
}

// Returns a number or a truth value as a constant.
std::optional<c10::IValue> ScalarOf(const json& file) {
  if (file.is_boolean()) return c10::IValue(file.get<bool>());
  if (const auto integer = IntegerOf(file)) return c10::IValue(*integer);
  if (file.is_number_integer()) return std::nullopt;
  if (const auto number = FloatOf(file)) return c10::IValue(*number);
  return std::nullopt;
}

// Returns the constant {kind: name}, for example {"layout": "strided"}.
absl::StatusOr<std::string> Constant(const json& file, const char* kind) {
  if (!file.is_object() || file.size() != 1 || !file.contains(kind)) {
    return Expected(absl::StrCat("a ", kind), file);
  }
  return Text(file, kind);
}

absl::StatusOr<int64_t> LayoutOf(const std::string& name) {
  if (name == "strided") return static_cast<int64_t>(c10::Layout::Strided);
  return absl::InvalidArgumentError(
      absl::StrCat("layout: expected strided, found '", Shown(name), "'"));
}

absl::StatusOr<int64_t> MemoryFormatOf(const std::string& name) {
  static const auto& formats = *new std::map<std::string, c10::MemoryFormat>{
      {"contiguous_format", c10::MemoryFormat::Contiguous},
      {"preserve_format", c10::MemoryFormat::Preserve},
      {"channels_last", c10::MemoryFormat::ChannelsLast},
      {"channels_last_3d", c10::MemoryFormat::ChannelsLast3d}};
  const auto found = formats.find(name);
  if (found != formats.end()) return static_cast<int64_t>(found->second);
  return absl::InvalidArgumentError(absl::StrCat("memory_format: found '", Shown(name), "'"));
}

Argument OfConstant(c10::IValue constant) { return {.constant = std::move(constant)}; }

Argument OfValue(int value) { return {.kind = Argument::Kind::kValue, .value = value}; }

absl::StatusOr<Argument> ReadTensor(const json& file, const Names& names) {
  if (const auto number = ScalarOf(file)) return OfConstant(AsTensor(number->toScalar()));
  ASSIGN_OR_RETURN(const int value, names.Find(file));
  Argument argument = OfValue(value);
  if (names.kind(value) != ValueKind::kTensor) argument.kind = Argument::Kind::kNumberAsTensor;
  return argument;
}

// Reads a value of one of these kinds.
absl::StatusOr<Argument> ReadValue(const json& file, std::initializer_list<ValueKind> kinds,
                                   const char* what, const Names& names) {
  if (!IsReference(file)) return Expected(what, file);
  ASSIGN_OR_RETURN(const int value, names.Find(file));
  for (const ValueKind kind : kinds) {
    if (names.kind(value) == kind) return OfValue(value);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", what, ", found ", names.Describe(value)));
}

absl::StatusOr<Argument> ReadTensors(const json& file, bool optional, const Names& names) {
  if (!file.is_array()) return Expected("a list of tensors", file);
  Argument argument{.kind = optional ? Argument::Kind::kOptionalTensors : Argument::Kind::kTensors};
  for (const json& one : file) {
    Element element;
    if (!(optional && one.is_null())) {
      ASSIGN_OR_RETURN(const Argument value,
                       ReadValue(one, {ValueKind::kTensor}, "a tensor", names));
      element.value = value.value;
    }
    argument.elements.push_back(element);
  }
  return argument;
}

// Returns the elements of a list, or the one value in place of a list. A copy of a hostile list
// could need more stack than there is.
std::vector<const json*> Elements(const json& file) {
  std::vector<const json*> elements;
  if (!file.is_array()) return {&file};
  for (const json& one : file) elements.push_back(&one);
  return elements;
}

absl::StatusOr<Argument> ReadIntegers(const json& file, const Names& names) {
  Argument argument{.kind = Argument::Kind::kIntegers};
  bool constant = true;
  for (const json* one : Elements(file)) {
    Element element;
    if (const auto integer = IntegerOf(*one)) {
      element.integer = *integer;
    } else {
      ASSIGN_OR_RETURN(const Argument value,
                       ReadValue(*one, {ValueKind::kInt}, "a whole number", names));
      element.value = value.value;
      constant = false;
    }
    argument.elements.push_back(element);
  }
  if (!constant) return argument;
  c10::List<int64_t> integers;
  for (const Element& one : argument.elements) integers.push_back(one.integer);
  return OfConstant(std::move(integers));
}

template <typename T, typename F>
absl::StatusOr<Argument> ReadConstants(const json& file, const char* what, F of) {
  c10::List<T> constants;
  for (const json* one : Elements(file)) {
    const std::optional<T> constant = of(*one);
    if (!constant.has_value()) return Expected(what, *one);
    constants.push_back(*constant);
  }
  return OfConstant(std::move(constants));
}

std::optional<bool> BooleanOf(const json& file) {
  if (!file.is_boolean()) return std::nullopt;
  return file.get<bool>();
}

absl::StatusOr<Argument> ReadList(const json& file, const c10::Type& type, const Names& names) {
  const c10::Type& element = *type.castRaw<c10::ListType>()->getElementType();
  switch (element.kind()) {
    case TypeKind::TensorType:
      return ReadTensors(file, /*optional=*/false, names);
    case TypeKind::OptionalType:
      return ReadTensors(file, /*optional=*/true, names);
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return ReadIntegers(file, names);
    case TypeKind::FloatType:
      return ReadConstants<double>(file, "a number", FloatOf);
    case TypeKind::BoolType:
      return ReadConstants<bool>(file, "true or false", BooleanOf);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("is of the type ", type.str(), ", which no graph can have"));
  }
}

}  // namespace

absl::StatusOr<int> Names::Make(const std::string& name, ValueKind kind) {
  const auto [at, inserted] = by_name_.emplace(std::pair("value", name), size());
  if (!inserted) {
    return absl::InvalidArgumentError(absl::StrCat("makes the value '", Shown(name), "' again"));
  }
  values_.push_back({"value", name, kind});
  return at->second;
}

void Names::AddTensor(const std::string& what, const std::string& name) {
  by_name_.emplace(std::pair(what, name), size());
  values_.push_back({what, name, ValueKind::kTensor});
}

absl::StatusOr<int> Names::Find(const json& argument) const {
  if (!IsReference(argument)) return Expected("a value or a tensor of the model", argument);
  const std::string& what = argument.begin().key();
  ASSIGN_OR_RETURN(const std::string name, Text(argument, what.c_str()));
  const auto found = by_name_.find({what, name});
  if (found != by_name_.end()) return found->second;
  return absl::InvalidArgumentError(absl::StrCat(
      "uses the ", what, " '", Shown(name),
      what == "value" ? "', which nothing before it makes" : "', which the unit does not have"));
}

std::string Names::Describe(int value) const {
  static constexpr const char* kKinds[] = {"tensor", "whole number", "number", "truth value"};
  const Value& one = values_[value];
  return absl::StrCat(one.what == "value" ? kKinds[static_cast<int>(one.kind)] : one.what, " '",
                      Shown(one.name), "'");
}

at::Tensor AsTensor(const c10::Scalar& number) {
  const auto type = number.isBoolean()         ? at::kBool
                    : number.isIntegral(false) ? at::kLong
                                               : at::kDouble;
  at::Tensor tensor = at::scalar_tensor(number, at::TensorOptions().dtype(type));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

absl::StatusOr<c10::ScalarType> TypeOf(const std::string& name) {
  static const auto& types =
      *new std::map<std::string, c10::ScalarType>{{"bool", at::kBool},
                                                  {"uint8", at::kByte},
                                                  {"int8", at::kChar},
                                                  {"int16", at::kShort},
                                                  {"int32", at::kInt},
                                                  {"int64", at::kLong},
                                                  {"float16", at::kHalf},
                                                  {"bfloat16", at::kBFloat16},
                                                  {"float32", at::kFloat},
                                                  {"float64", at::kDouble},
                                                  {"complex64", at::kComplexFloat},
                                                  {"complex128", at::kComplexDouble}};
  const auto found = types.find(name);
  if (found != types.end()) return found->second;
  return absl::InvalidArgumentError(absl::StrCat("dtype: found '", Shown(name), "'"));
}

absl::StatusOr<Argument> ReadArgument(const json& file, const c10::Type& type, const Names& names) {
  switch (type.kind()) {
    case TypeKind::OptionalType: {
      const c10::Type& inner = *type.castRaw<c10::OptionalType>()->getElementType();
      if (file.is_null() && inner.kind() == TypeKind::GeneratorType) {
        return Argument{.kind = Argument::Kind::kGenerator};
      }
      if (file.is_null()) return OfConstant(c10::IValue());
      return ReadArgument(file, inner, names);
    }
    case TypeKind::TensorType:
      return ReadTensor(file, names);
    case TypeKind::ListType:
      return ReadList(file, type, names);
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      if (const auto integer = IntegerOf(file)) return OfConstant(*integer);
      return ReadValue(file, {ValueKind::kInt}, "a whole number", names);
    case TypeKind::FloatType:
      if (const auto number = FloatOf(file)) return OfConstant(*number);
      return ReadValue(file, {ValueKind::kFloat}, "a number", names);
    case TypeKind::NumberType:
      if (const auto scalar = ScalarOf(file)) return OfConstant(*scalar);
      return ReadValue(file, {ValueKind::kInt, ValueKind::kFloat, ValueKind::kBool}, "a number",
                       names);
    case TypeKind::BoolType:
      if (const auto truth = BooleanOf(file)) return OfConstant(*truth);
      return ReadValue(file, {ValueKind::kBool}, "true or false", names);
    case TypeKind::StringType:
      if (!file.is_string()) return Expected("a text", file);
      return OfConstant(file.get<std::string>());
    case TypeKind::ScalarTypeType: {
      ASSIGN_OR_RETURN(const std::string name, Constant(file, "dtype"));
      ASSIGN_OR_RETURN(const c10::ScalarType dtype, TypeOf(name));
      return OfConstant(static_cast<int64_t>(dtype));
    }
    case TypeKind::LayoutType: {
      ASSIGN_OR_RETURN(const std::string name, Constant(file, "layout"));
      ASSIGN_OR_RETURN(const int64_t layout, LayoutOf(name));
      return OfConstant(layout);
    }
    case TypeKind::MemoryFormatType: {
      ASSIGN_OR_RETURN(const std::string name, Constant(file, "memory_format"));
      ASSIGN_OR_RETURN(const int64_t format, MemoryFormatOf(name));
      return OfConstant(format);
    }
    case TypeKind::DeviceObjType: {
      ASSIGN_OR_RETURN(const std::string name, Constant(file, "device"));
      if (name != "worker") return Expected("the device \"worker\"", file);
      return Argument{.kind = Argument::Kind::kDevice};
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("is of the type ", type.str(), ", which no graph can have"));
  }
}

absl::StatusOr<Argument> ReadNumber(const json& file, const Names& names) {
  if (const auto scalar = ScalarOf(file)) return OfConstant(*scalar);
  return ReadValue(file, {ValueKind::kInt, ValueKind::kFloat, ValueKind::kBool}, "a number", names);
}

}  // namespace muster::models::exported
