#include "common/jobspec/validate_generic.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/jobspec/fields.h"

namespace muster::jobspec {
namespace {

using google::protobuf::FieldDescriptor;

void CheckOneofs(const google::protobuf::Message& message, const std::string& path,
                 ProblemList* problems) {
  const auto* descriptor = message.GetDescriptor();
  for (int i = 0; i < descriptor->real_oneof_decl_count(); ++i) {
    const auto* oneof = descriptor->oneof_decl(i);
    if (message.GetReflection()->HasOneof(message, oneof)) continue;
    problems->Add(path, absl::StrCat("nothing is chosen; allowed is one of: ",
                                     absl::StrJoin(Alternatives(*oneof), ", ")));
  }
}

}  // namespace

void ValidateGeneric(const v1::JobSpec& spec, ProblemList* problems) {
  ForEachValue(spec, [problems](const FieldValue& value) {
    switch (value.field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        CheckOneofs(value.Message(), value.path, problems);
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        if (value.field->enum_type()->FindValueByNumber(value.Enum()) == nullptr) {
          problems->Add(value.path,
                        absl::StrCat("found the unknown number ", value.Enum(), "; allowed: ",
                                     absl::StrJoin(EnumNames(*value.field->enum_type()), ", ")));
        }
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        if (!std::isfinite(value.Double())) {
          problems->Add(value.path,
                        absl::StrCat("found ", value.Double(), "; allowed: a finite number"));
        }
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        if (PathUseOf(*value.field) == PathUse::kNone) break;
        if (value.String().empty()) {
          problems->Add(value.path, "is empty; allowed: a path");
        } else if (value.String()[0] != '/') {
          problems->Add(value.path,
                        absl::StrCat("found '", value.String(), "'; allowed: an absolute path"));
        } else if (value.String().find('\0') != std::string::npos) {
          problems->Add(value.path, "holds a NUL character; allowed: a path");
        }
        break;
      default:
        break;
    }
  });
}

}  // namespace muster::jobspec
