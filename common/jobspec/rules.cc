#include "common/jobspec/rules.h"

#include <google/protobuf/text_format.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/jobspec/fields.h"
#include "common/protoenum/cases.h"

namespace muster::jobspec {

bool IsDirectory(const std::string& checkpoint) {
  return checkpoint.find('/') != std::string::npos;
}

std::optional<JobAndStep> ParseJobAndStep(const std::string& checkpoint) {
  const size_t at = checkpoint.find('@');
  JobAndStep result{.job = checkpoint.substr(0, at), .step = std::nullopt};
  constexpr char kIdCharacters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
  if (result.job.empty() || result.job.find_first_not_of(kIdCharacters) != std::string::npos) {
    return std::nullopt;
  }
  if (at == std::string::npos) return result;
  uint64_t step = 0;
  if (!absl::SimpleAtoi(checkpoint.substr(at + 1), &step)) return std::nullopt;
  result.step = step;
  return result;
}

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

constexpr char kNameCharacters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

// Sets a singular field, or adds to a list.
void Give(const std::string& text, const FieldDescriptor& field, Message* message) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    Message* child = message->GetReflection()->MutableMessage(message, &field);
    if (text == "{}") return;
    const FieldDescriptor* alternative = child->GetDescriptor()->FindFieldByName(text);
    GOOGLE_CHECK(alternative != nullptr) << field.full_name() << ": default '" << text << "'";
    child->GetReflection()->MutableMessage(child, alternative);
    return;
  }
  std::string value = text;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) value = absl::AsciiStrToUpper(text);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) value = absl::StrCat("\"", text, "\"");
  GOOGLE_CHECK(google::protobuf::TextFormat::ParseFieldValueFromString(value, &field, message))
      << field.full_name() << ": default '" << text << "'";
}

bool IsGiven(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  return field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                             : reflection.HasField(message, &field);
}

const OneofDescriptor* FirstOneof(const google::protobuf::Descriptor& type) {
  return type.real_oneof_decl_count() > 0 ? type.oneof_decl(0) : nullptr;
}

std::string AllowedText(const v1::FieldRule& rule) {
  if (!rule.allowed().empty()) return rule.allowed();
  switch (rule.text()) {
    case v1::FieldRule::INPUT_PATH:
    case v1::FieldRule::OUTPUT_PATH:
      return "a path";
    case v1::FieldRule::FOLDER:
      return "the path of a folder";
    case v1::FieldRule::DURATION:
      return kAllowedDurations;
    case v1::FieldRule::PATTERN:
      return "a pattern";
    case v1::FieldRule::UNITS:
      return "block, or a pattern of units' names";
    case v1::FieldRule::CHECKPOINT:
      return "the directory of a checkpoint (with a '/'), JOB, or JOB@STEP";
    case v1::FieldRule::TEXT_UNSPECIFIED:
    case v1::FieldRule::JOB_NAME:
      MUSTER_CASE_NO_VALUE_OF(v1::FieldRule_Text, FieldRule_Text)
      break;
  }
  return "a text";
}

// "2 numbers, such as [0.9, 0.999]"
std::string AllowedElements(const v1::FieldRule& rule) {
  const std::string count = absl::StrCat(rule.elements(), " numbers");
  if (rule.default_().empty()) return count;
  return absl::StrCat(count, ", such as [", absl::StrJoin(rule.default_(), ", "), "]");
}

// The text of the error for a missing field that is needed.
std::string Missing(const FieldDescriptor& field) {
  const v1::FieldRule& rule = RuleOf(field);
  const bool text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    const std::string kinds = absl::StrJoin(Alternatives(*FirstOneof(*field.message_type())), ", ");
    return field.is_repeated()
               ? absl::StrCat("is missing or empty; allowed: one or more of ", kinds)
               : absl::StrCat("is missing; allowed is one of: ", kinds);
  }
  if (field.is_repeated()) {
    if (rule.has_elements()) {
      return absl::StrCat("is missing or empty; allowed: ", AllowedElements(rule));
    }
    return absl::StrCat("is missing or empty; allowed: one or more ", text ? "paths" : "numbers");
  }
  if (text) return absl::StrCat("is missing; allowed: ", AllowedText(rule));
  return absl::StrCat("is missing or 0; allowed: ", AllowedNumbers(rule));
}

// Returns whether a value is in the range. False for NaN, by the form of the comparisons.
bool IsWithin(const v1::FieldRule& rule, double value) {
  return (!rule.has_at_least() || value >= rule.at_least()) &&
         (!rule.has_at_most() || value <= rule.at_most()) &&
         (!rule.has_above() || value > rule.above()) && (!rule.has_below() || value < rule.below());
}

bool IsNumber(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
    case FieldDescriptor::CPPTYPE_ENUM:
    case FieldDescriptor::CPPTYPE_STRING:
    case FieldDescriptor::CPPTYPE_BOOL:
      return false;
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return true;
  }
  return false;
}

// The allowed values in place of this number; empty if the number is allowed.
std::string FaultOfNumber(const FieldValue& value) {
  const v1::FieldRule& rule = RuleOf(*value.field);
  const double number = value.Number();
  if (!IsWithin(rule, number)) return AllowedNumbers(rule);
  return std::isfinite(number) ? "" : "a finite number";
}

class RuleChecker {
 public:
  explicit RuleChecker(ProblemList* problems) : problems_(*problems) {}

  void CheckMessage(const Message& message, const std::string& path) {
    const auto& type = *message.GetDescriptor();
    for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
      const OneofDescriptor& oneof = *type.oneof_decl(i);
      if (message.GetReflection()->HasOneof(message, &oneof)) continue;
      problems_.Add(path, absl::StrCat("nothing is chosen; allowed is one of: ",
                                       absl::StrJoin(Alternatives(oneof), ", ")));
    }
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      // The texts of a map are for the plug-in.
      if (field.is_map()) continue;
      CheckField(message, field, PathOf(path, field));
    }
  }

 private:
  void CheckField(const Message& message, const FieldDescriptor& field, const std::string& path) {
    const v1::FieldRule& rule = RuleOf(field);
    const Reflection& reflection = *message.GetReflection();
    if (!IsGiven(message, field)) {
      if (!rule.needed()) return;
      const bool fields_of_its_own = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
                                     FirstOneof(*field.message_type()) == nullptr;
      if (!fields_of_its_own) return problems_.Add(path, Missing(field));
      // The problems of the message's fields say more than its absence.
      return CheckMessage(reflection.GetMessage(message, &field), path);
    }
    if (!field.is_repeated()) return CheckValue({&message, &field, -1, path});
    const int size = reflection.FieldSize(message, &field);
    if (rule.has_elements() && size != static_cast<int>(rule.elements())) {
      problems_.Add(path,
                    absl::StrCat("found a list of ", size, "; allowed: ", AllowedElements(rule)));
    }
    for (int i = 0; i < size; ++i) {
      FieldValue value{&message, &field, i, ""};
      // An allowed number needs no path: lists of numbers may be long.
      if (IsNumber(field) && FaultOfNumber(value).empty()) continue;
      value.path = ElementPath(path, i);
      CheckValue(value);
    }
  }

  void CheckValue(const FieldValue& value) {
    switch (value.field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return CheckMessage(value.Message(), value.path);
      case FieldDescriptor::CPPTYPE_ENUM:
        return CheckEnum(value);
      case FieldDescriptor::CPPTYPE_STRING:
        return CheckText(value);
      case FieldDescriptor::CPPTYPE_BOOL:
        return;
      case FieldDescriptor::CPPTYPE_INT32:
      case FieldDescriptor::CPPTYPE_INT64:
      case FieldDescriptor::CPPTYPE_UINT32:
      case FieldDescriptor::CPPTYPE_UINT64:
      case FieldDescriptor::CPPTYPE_DOUBLE:
      case FieldDescriptor::CPPTYPE_FLOAT:
        return CheckNumber(value);
    }
  }

  void CheckEnum(const FieldValue& value) {
    const auto& type = *value.field->enum_type();
    if (type.FindValueByNumber(value.Enum()) != nullptr) return;
    problems_.Add(value.path, absl::StrCat("found the unknown number ", value.Enum(),
                                           "; allowed: ", absl::StrJoin(EnumNames(type), ", ")));
  }

  void CheckNumber(const FieldValue& value) {
    const std::string allowed = FaultOfNumber(value);
    if (allowed.empty()) return;
    problems_.Add(value.path, absl::StrCat("found ", value.Exact(), "; allowed: ", allowed));
  }

  void CheckText(const FieldValue& value) {
    const v1::FieldRule& rule = RuleOf(*value.field);
    const std::string text = value.String();
    const auto found = [&](const std::string& what) {
      problems_.Add(value.path, absl::StrCat(what, "; allowed: ", AllowedText(rule)));
    };
    switch (rule.text()) {
      case v1::FieldRule::INPUT_PATH:
      case v1::FieldRule::OUTPUT_PATH:
      case v1::FieldRule::FOLDER:
        if (text.empty()) return found("is empty");
        if (text[0] != '/') {
          problems_.Add(value.path, absl::StrCat("found '", text, "'; allowed: an absolute path"));
        } else if (text.find('\0') != std::string::npos) {
          found("holds a NUL character");
        }
        return;
      case v1::FieldRule::DURATION:
        if (!DurationOf(text).has_value()) found(absl::StrCat("found '", text, "'"));
        return;
      case v1::FieldRule::JOB_NAME:
        if (text.size() > 40) {
          found(absl::StrCat("found ", text.size(), " characters"));
        } else if (text[0] == '-' || text.find_first_not_of(kNameCharacters) != std::string::npos) {
          found(absl::StrCat("found '", text, "'"));
        }
        return;
      case v1::FieldRule::PATTERN:
      case v1::FieldRule::UNITS:
        if (text.empty()) found("is empty");
        return;
      case v1::FieldRule::CHECKPOINT:
        if (text.empty()) return found("is empty");
        if (IsDirectory(text) ? text[0] != '/' : !ParseJobAndStep(text).has_value()) {
          found(absl::StrCat("found '", text, "'"));
        }
        return;
      case v1::FieldRule::TEXT_UNSPECIFIED:
        MUSTER_CASE_NO_VALUE_OF(v1::FieldRule_Text, FieldRule_Text)
        return;
    }
  }

  ProblemList& problems_;
};

}  // namespace

const v1::FieldRule& RuleOf(const FieldDescriptor& field) {
  return field.options().GetExtension(v1::rule);
}

bool IsPath(const FieldDescriptor& field) {
  const v1::FieldRule::Text text = RuleOf(field).text();
  return text == v1::FieldRule::INPUT_PATH || text == v1::FieldRule::OUTPUT_PATH ||
         text == v1::FieldRule::FOLDER;
}

void FillDefaults(Message* message) {
  const auto& type = *message->GetDescriptor();
  const Reflection& reflection = *message->GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!IsGiven(*message, field)) {
      for (const std::string& text : RuleOf(field).default_()) Give(text, field, message);
    }
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field.is_map()) continue;
    if (field.is_repeated()) {
      for (int at = 0; at < reflection.FieldSize(*message, &field); ++at) {
        FillDefaults(reflection.MutableRepeatedMessage(message, &field, at));
      }
    } else if (reflection.HasField(*message, &field)) {
      FillDefaults(reflection.MutableMessage(message, &field));
    }
  }
}

void CheckRules(const Message& message, ProblemList* problems) {
  RuleChecker(problems).CheckMessage(message, "");
}

std::string AllowedNumbers(const v1::FieldRule& rule) {
  const auto text = [](double number) {
    const bool whole = number == std::floor(number) && std::abs(number) < 1e15;
    return whole ? absl::StrCat(static_cast<int64_t>(number)) : absl::StrCat(number);
  };
  const double low = rule.has_at_least() ? rule.at_least() : rule.above();
  const double high = rule.has_at_most() ? rule.at_most() : rule.below();
  const bool has_low = rule.has_at_least() || rule.has_above();
  const bool has_high = rule.has_at_most() || rule.has_below();
  if (has_low && has_high) {
    if (rule.has_at_least()) {
      return rule.has_at_most() ? absl::StrCat(text(low), " to ", text(high))
                                : absl::StrCat("from ", text(low), " to below ", text(high));
    }
    return rule.has_at_most() ? absl::StrCat("a number above ", text(low), ", at most ", text(high))
                              : absl::StrCat("above ", text(low), " and below ", text(high));
  }
  if (rule.has_at_least()) return absl::StrCat(text(low), " or more");
  if (rule.has_above()) return absl::StrCat("a number above ", text(low));
  if (rule.has_at_most()) return absl::StrCat("at most ", text(high));
  return rule.has_below() ? absl::StrCat("a number below ", text(high)) : std::string();
}

std::vector<std::pair<std::string, std::string>> InputFiles(const v1::JobSpec& spec) {
  std::vector<std::pair<std::string, std::string>> inputs;
  ForEachValue(spec, [&](const FieldValue& value) {
    const v1::FieldRule::Text text = RuleOf(*value.field).text();
    if (text == v1::FieldRule::INPUT_PATH || text == v1::FieldRule::FOLDER) {
      inputs.emplace_back(value.path, value.String());
    }
  });
  return inputs;
}

}  // namespace muster::jobspec
