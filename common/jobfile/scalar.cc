#include "common/jobfile/scalar.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/jobfile/near_name.h"
#include "common/jobspec/fields.h"
#include "common/jobspec/rules.h"
#include "common/utf8/utf8.h"

namespace muster::jobfile {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string Shortened(const std::string& text) {
  constexpr size_t kLongest = 60;
  std::string shown = text.substr(0, kLongest);
  shown.resize(ValidUtf8Prefix(shown));  // no incomplete character
  if (shown.size() < text.size()) shown += "...";
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return shown;
}

// yaml-cpp tags quoted scalars "!", plain ones "?".
bool IsText(const YAML::Node& node) {
  return node.Tag() == "!" || node.Tag() == "tag:yaml.org,2002:str";
}

enum class Read { kOk, kNotThis, kOutOfRange };

// Reads decimal digits, or 0x and hexadecimal digits.
template <typename Integer>
Read ReadInteger(const std::string& text, Integer* value) {
  std::string digits = text;
  bool negative = false;
  if (!digits.empty() && (digits[0] == '+' || digits[0] == '-')) {
    negative = digits[0] == '-';
    digits.erase(0, 1);
  }
  int base = 10;
  if (digits.rfind("0x", 0) == 0 || digits.rfind("0X", 0) == 0) {
    base = 16;
    digits.erase(0, 2);
  }
  // A second sign is not allowed.
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return Read::kNotThis;
  uint64_t magnitude = 0;
  const auto result =
      std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base);
  if (result.ptr != digits.data() + digits.size()) return Read::kNotThis;
  if (result.ec != std::errc()) return Read::kOutOfRange;
  using Limits = std::numeric_limits<Integer>;
  if (negative) {
    const uint64_t lowest = Limits::is_signed ? uint64_t{1} << (sizeof(Integer) * 8 - 1) : 0;
    if (magnitude > lowest) return Read::kOutOfRange;
    *value = static_cast<Integer>(uint64_t{0} - magnitude);
  } else {
    if (magnitude > static_cast<uint64_t>(Limits::max())) return Read::kOutOfRange;
    *value = static_cast<Integer>(magnitude);
  }
  return Read::kOk;
}

Read ReadDouble(const std::string& text, double* value) {
  const size_t sign = !text.empty() && text[0] == '+' ? 1 : 0;
  // from_chars would also read "inf" and "nan", which are not YAML.
  if (text.find_first_not_of("0123456789.eE+-") != std::string::npos) return Read::kNotThis;
  if (sign == 1 && text.size() > 1 && text[1] == '-') return Read::kNotThis;
  const auto result = std::from_chars(text.data() + sign, text.data() + text.size(), *value);
  if (text.size() == sign || result.ptr != text.data() + text.size()) return Read::kNotThis;
  return result.ec == std::errc() ? Read::kOk : Read::kOutOfRange;
}

Read ReadBool(const std::string& text, bool* value) {
  *value = text == "true" || text == "True" || text == "TRUE";
  return *value || text == "false" || text == "False" || text == "FALSE" ? Read::kOk
                                                                         : Read::kNotThis;
}

// Reads with `read`, and sets or adds with the reflection's two methods for the type.
template <typename T, typename Reader, typename Setter, typename Adder>
Read Put(const YAML::Node& node, const FieldDescriptor& field, Message* message, Reader read,
         Setter set, Adder add) {
  if (IsText(node)) return Read::kNotThis;
  T value{};
  const Read result = read(node.Scalar(), &value);
  if (result != Read::kOk) return result;
  const auto* reflection = message->GetReflection();
  if (field.is_repeated()) {
    (reflection->*add)(message, &field, value);
  } else {
    (reflection->*set)(message, &field, value);
  }
  return Read::kOk;
}

Read PutNumber(const YAML::Node& node, const FieldDescriptor& field, Message* message) {
  using Reflection = google::protobuf::Reflection;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return Put<int32_t>(node, field, message, ReadInteger<int32_t>, &Reflection::SetInt32,
                          &Reflection::AddInt32);
    case FieldDescriptor::CPPTYPE_UINT32:
      return Put<uint32_t>(node, field, message, ReadInteger<uint32_t>, &Reflection::SetUInt32,
                           &Reflection::AddUInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return Put<int64_t>(node, field, message, ReadInteger<int64_t>, &Reflection::SetInt64,
                          &Reflection::AddInt64);
    case FieldDescriptor::CPPTYPE_UINT64:
      return Put<uint64_t>(node, field, message, ReadInteger<uint64_t>, &Reflection::SetUInt64,
                           &Reflection::AddUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Put<double>(node, field, message, ReadDouble, &Reflection::SetDouble,
                         &Reflection::AddDouble);
    case FieldDescriptor::CPPTYPE_BOOL:
      return Put<bool>(node, field, message, ReadBool, &Reflection::SetBool, &Reflection::AddBool);
    default:
      return Read::kNotThis;
  }
}

// The nearest allowed form of a number, also of a quoted one. "1000" for "1_000", and for "1e3" and
// "1000.0" if a whole number is expected. Empty if there is none.
std::string Meant(const std::string& text, const FieldDescriptor& field) {
  std::string digits = text;
  digits.erase(std::remove_if(digits.begin(), digits.end(),
                              [](char c) { return c == '_' || c == ' ' || c == '\''; }),
               digits.end());
  double number = 0;
  if (ReadDouble(digits, &number) != Read::kOk) return "";
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) return digits;
  constexpr double kExact = 1e15;  // whole numbers up to here are exact
  const bool is_unsigned = field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32 ||
                           field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64;
  const bool whole = std::abs(number) <= kExact && number == std::floor(number) &&
                     (number >= 0 || !is_unsigned);
  return whole ? absl::StrCat(static_cast<int64_t>(number)) : "";
}

std::string SetError(const YAML::Node& node, const FieldDescriptor& field, Read result) {
  std::string error = absl::StrCat("found ", Found(node),
                                   result == Read::kOutOfRange ? ", which does not fit" : "",
                                   "; allowed: ", Expected(field));
  using Type = FieldDescriptor;
  const bool is_number =
      field.cpp_type() == Type::CPPTYPE_INT32 || field.cpp_type() == Type::CPPTYPE_UINT32 ||
      field.cpp_type() == Type::CPPTYPE_INT64 || field.cpp_type() == Type::CPPTYPE_UINT64 ||
      field.cpp_type() == Type::CPPTYPE_DOUBLE;
  if (!is_number || result != Read::kNotThis || !node.IsScalar()) return error;
  if (const std::string meant = Meant(node.Scalar(), field); !meant.empty()) {
    absl::StrAppend(&error, "; write ", meant, IsText(node) ? " without quotes" : "");
  }
  return error;
}

// The largest number of the type of a whole number.
std::string Largest(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(std::numeric_limits<int32_t>::max());
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(std::numeric_limits<uint32_t>::max());
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(std::numeric_limits<int64_t>::max());
    default:
      return absl::StrCat(std::numeric_limits<uint64_t>::max());
  }
}

}  // namespace

std::string Found(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar: {
      const std::string shown = absl::StrCat("'", Shortened(node.Scalar()), "'");
      return IsText(node) ? absl::StrCat("the text ", shown) : shown;
    }
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a mapping";
    default:
      return "nothing";
  }
}

std::string Expected(const FieldDescriptor& field) {
  const v1::FieldRule rule = jobspec::RuleOf(field);
  const std::string range = jobspec::AllowedNumbers(rule);
  if (!range.empty() && field.cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE) {
    const bool has_most = rule.has_at_most() || rule.has_below();
    return absl::StrCat("a whole number, ", range,
                        has_most ? "" : absl::StrCat(", at most ", Largest(field)));
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat("a whole number from ", std::numeric_limits<int32_t>::min(), " to ",
                          Largest(field));
    case FieldDescriptor::CPPTYPE_INT64:
      return "a whole number of 64 bits";
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat("a whole number from 0 to ", Largest(field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "a finite number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return absl::StrCat("one of: ", absl::StrJoin(jobspec::EnumNames(*field.enum_type()), ", "));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "a mapping (name: value)";
    default:
      return "a text";
  }
}

std::optional<std::string> SetScalar(const YAML::Node& node, const FieldDescriptor& field,
                                     Message* message) {
  if (!node.IsScalar()) return SetError(node, field, Read::kNotThis);
  const auto* reflection = message->GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    if (node.Scalar().empty()) return absl::StrCat("is empty; allowed: ", Expected(field));
    if (field.is_repeated()) {
      reflection->AddString(message, &field, node.Scalar());
    } else {
      reflection->SetString(message, &field, node.Scalar());
    }
    return std::nullopt;
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    const auto* type = field.enum_type();
    const std::vector<std::string> names = jobspec::EnumNames(*type);
    for (int i = 0, named = 0; i < type->value_count(); ++i) {
      if (type->value(i)->number() == 0 || names[named++] != node.Scalar()) continue;
      if (field.is_repeated()) {
        reflection->AddEnum(message, &field, type->value(i));
      } else {
        reflection->SetEnum(message, &field, type->value(i));
      }
      return std::nullopt;
    }
    std::string error = SetError(node, field, Read::kNotThis);
    const std::string near = NearName(node.Scalar(), names);
    if (!near.empty()) absl::StrAppend(&error, "; did you mean ", near, "?");
    return error;
  }
  const Read result = PutNumber(node, field, message);
  if (result == Read::kOk) return std::nullopt;
  return SetError(node, field, result);
}

}  // namespace muster::jobfile
