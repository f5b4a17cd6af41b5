#include "common/jobspec/sizes.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/jobspec/fields.h"
#include "common/jobspec/rules.h"
#include "common/protoenum/cases.h"

namespace muster::jobspec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

class SizeChecker {
 public:
  explicit SizeChecker(ProblemList* problems) : problems_(*problems) {}

  void CheckMessage(const Message& message, const std::string& path) {
    std::vector<const FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) CheckField(message, *field, PathOf(path, *field));
  }

 private:
  void CheckField(const Message& message, const FieldDescriptor& field, const std::string& path) {
    const Reflection& reflection = *message.GetReflection();
    const int size = field.is_repeated() ? reflection.FieldSize(message, &field) : 1;
    if (const auto most = MostElements(field); field.is_repeated() && most.has_value()) {
      if (size > *most) {
        return problems_.Add(
            path, absl::StrCat("found ", size, field.is_map() ? " keys" : "",
                               field.is_map() ? "" : " elements", "; allowed: at most ", *most));
      }
    }
    const bool text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    const bool child = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!text && !child) return;
    std::string scratch;
    for (int i = 0; i < size; ++i) {
      const auto at = [&] { return field.is_repeated() ? ElementPath(path, i) : path; };
      if (text) {
        const std::string& value =
            field.is_repeated()
                ? reflection.GetRepeatedStringReference(message, &field, i, &scratch)
                : reflection.GetStringReference(message, &field, &scratch);
        if (value.size() > LongestText(field)) AddText(at(), value.size(), field);
      } else {
        const Message& value = field.is_repeated()
                                   ? reflection.GetRepeatedMessage(message, &field, i)
                                   : reflection.GetMessage(message, &field);
        // A long key must not be a part of a path.
        field.is_map() ? CheckEntry(value, field, path) : CheckMessage(value, at());
      }
    }
  }

  void CheckEntry(const Message& entry, const FieldDescriptor& map, const std::string& path) {
    std::string scratch;
    for (const FieldDescriptor* field :
         {map.message_type()->map_key(), map.message_type()->map_value()}) {
      const std::string& value = entry.GetReflection()->GetStringReference(entry, field, &scratch);
      if (value.size() > LongestText(map)) AddText(path, value.size(), map);
    }
  }

  void AddText(const std::string& path, size_t bytes, const FieldDescriptor& field) {
    problems_.Add(path, absl::StrCat("found a text of ", bytes, " bytes; allowed: at most ",
                                     LongestText(field)));
  }

  ProblemList& problems_;
};

}  // namespace

size_t LongestText(const FieldDescriptor& field) {
  const v1::FieldRule& rule = RuleOf(field);
  switch (rule.text()) {
    case v1::FieldRule::PATTERN:
    case v1::FieldRule::UNITS:
      return kLongestPattern;
    case v1::FieldRule::INPUT_PATH:
    case v1::FieldRule::OUTPUT_PATH:
    case v1::FieldRule::CHECKPOINT:
    case v1::FieldRule::FOLDER:
    case v1::FieldRule::DURATION:
    case v1::FieldRule::JOB_NAME:
    case v1::FieldRule::TEXT_UNSPECIFIED:
      MUSTER_CASE_NO_VALUE_OF(v1::FieldRule_Text, FieldRule_Text)
      break;
  }
  return kLongestText;
}

std::optional<int> MostElements(const FieldDescriptor& field) {
  if (RuleOf(field).bare()) return std::nullopt;
  const bool texts = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  return texts ? kMostTexts : kMostElements;
}

void CheckSizes(const Message& spec, ProblemList* problems) {
  if (const size_t bytes = spec.ByteSizeLong(); bytes > kMostSpecBytes) {
    return problems->Add(
        "", absl::StrCat("the job has ", bytes, " bytes, as an encoded message; allowed: at most ",
                         kMostSpecBytes,
                         "; long lists, such as prompts, can be given as the path of a file"));
  }
  SizeChecker(problems).CheckMessage(spec, "");
}

}  // namespace muster::jobspec
