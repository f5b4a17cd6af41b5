#include "common/jobspec/fields.h"

#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace muster::jobspec {
namespace {

using google::protobuf::FieldDescriptor;

void Visit(const google::protobuf::Message& message, const std::string& parent,
           const std::function<void(const FieldValue&)>& visit) {
  const auto* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->is_map()) continue;
    const std::string path = ChildPath(parent, field->name());
    const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const int index = field->is_repeated() ? i : -1;
      const FieldValue value{&message, field, index,
                             field->is_repeated() ? ElementPath(path, i) : path};
      visit(value);
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) Visit(value.Message(), value.path, visit);
    }
  }
}

}  // namespace

PathUse PathUseOf(const FieldDescriptor& field) {
  static const auto& table = *new std::map<std::string, PathUse>{
      {"muster.v1.ModelSpec.weights", PathUse::kInput},
      {"muster.v1.TokenData.path", PathUse::kInput},
      {"muster.v1.SafetensorsData.path", PathUse::kInput},
      {"muster.v1.IdxData.images", PathUse::kInput},
      {"muster.v1.IdxData.labels", PathUse::kInput},
      {"muster.v1.NpyData.inputs", PathUse::kInput},
      {"muster.v1.NpyData.labels", PathUse::kInput},
      {"muster.v1.DataSet.per_rank", PathUse::kInput},
      {"muster.v1.TorchscriptSpec.path", PathUse::kInput},
      {"muster.v1.PluginSpec.path", PathUse::kInput},
      {"muster.v1.CheckpointSpec.directory", PathUse::kOutput},
      {"muster.v1.ExportSpec.path", PathUse::kOutput},
      {"muster.v1.ProfileSpec.directory", PathUse::kOutput},
  };
  const auto found = table.find(field.full_name());
  return found == table.end() ? PathUse::kNone : found->second;
}

std::string FieldValue::String() const {
  const auto* reflection = owner->GetReflection();
  return index < 0 ? reflection->GetString(*owner, field)
                   : reflection->GetRepeatedString(*owner, field, index);
}

double FieldValue::Double() const {
  const auto* reflection = owner->GetReflection();
  return index < 0 ? reflection->GetDouble(*owner, field)
                   : reflection->GetRepeatedDouble(*owner, field, index);
}

int FieldValue::Enum() const {
  const auto* reflection = owner->GetReflection();
  return index < 0 ? reflection->GetEnumValue(*owner, field)
                   : reflection->GetRepeatedEnumValue(*owner, field, index);
}

const google::protobuf::Message& FieldValue::Message() const {
  const auto* reflection = owner->GetReflection();
  return index < 0 ? reflection->GetMessage(*owner, field)
                   : reflection->GetRepeatedMessage(*owner, field, index);
}

void ForEachValue(const google::protobuf::Message& message,
                  const std::function<void(const FieldValue&)>& visit) {
  Visit(message, "", visit);
}

std::string ChildPath(const std::string& parent, const std::string& name) {
  return parent.empty() ? name : absl::StrCat(parent, ".", name);
}

std::string ElementPath(const std::string& list, int index) {
  return absl::StrCat(list, "[", index, "]");
}

std::string ParentPath(const std::string& path) {
  const size_t end = path.find_last_of(".[");
  return end == std::string::npos ? std::string() : path.substr(0, end);
}

std::vector<std::string> EnumNames(const google::protobuf::EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0) names.push_back(absl::AsciiStrToLower(type.value(i)->name()));
  }
  return names;
}

std::vector<std::string> Alternatives(const google::protobuf::OneofDescriptor& oneof) {
  std::vector<std::string> names;
  for (int i = 0; i < oneof.field_count(); ++i) names.push_back(oneof.field(i)->name());
  return names;
}

}  // namespace muster::jobspec
