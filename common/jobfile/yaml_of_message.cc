#include "common/jobfile/yaml_of_message.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/jobspec/fields.h"

namespace muster::jobfile {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

YAML::Node YamlOfScalar(const jobspec::FieldValue& value) {
  if (value.field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) return YAML::Node(value.String());
  if (value.field->cpp_type() != FieldDescriptor::CPPTYPE_ENUM) return YAML::Node(value.Exact());
  const auto& type = *value.field->enum_type();
  const std::vector<std::string> names = jobspec::EnumNames(type);
  for (int i = 0, named = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() == 0) continue;
    if (type.value(i)->number() == value.Enum()) return YAML::Node(names[named]);
    ++named;
  }
  return YAML::Node(absl::StrCat(value.Enum()));
}

YAML::Node YamlOfValue(const Message& owner, const FieldDescriptor& field, int index) {
  const jobspec::FieldValue value{&owner, &field, index, ""};
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE ? YamlOf(value.Message())
                                                              : YamlOfScalar(value);
}

YAML::Node YamlOfMap(const Message& owner, const FieldDescriptor& field) {
  YAML::Node map(YAML::NodeType::Map);
  const auto* reflection = owner.GetReflection();
  for (int i = 0; i < reflection->FieldSize(owner, &field); ++i) {
    const Message& entry = reflection->GetRepeatedMessage(owner, &field, i);
    const auto* texts = entry.GetReflection();
    map.force_insert(texts->GetString(entry, field.message_type()->map_key()),
                     texts->GetString(entry, field.message_type()->map_value()));
  }
  return map;
}

YAML::Node YamlOfField(const Message& owner, const FieldDescriptor& field) {
  if (field.is_map()) return YamlOfMap(owner, field);
  if (!field.is_repeated()) return YamlOfValue(owner, field, -1);
  YAML::Node list(YAML::NodeType::Sequence);
  for (int i = 0; i < owner.GetReflection()->FieldSize(owner, &field); ++i) {
    list.push_back(YamlOfValue(owner, field, i));
  }
  return list;
}

}  // namespace

YAML::Node YamlOf(const Message& message) {
  if (const FieldDescriptor* list = jobspec::BareList(*message.GetDescriptor()); list != nullptr) {
    return YamlOfField(message, *list);
  }
  YAML::Node map(YAML::NodeType::Map);
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    map.force_insert(jobspec::NameOf(*field), YamlOfField(message, *field));
  }
  return map;
}

}  // namespace muster::jobfile
