#include "common/jobspec/fields.h"

#include <google/protobuf/text_format.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/muster/v1/options.pb.h"

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
    const std::string path = PathOf(parent, *field);
    const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const int index = field->is_repeated() ? i : -1;
      const FieldValue value{&message, field, index,
                             field->is_repeated() ? ElementPath(path, i) : path};
      visit(value);
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
        Visit(value.Message(), value.path, visit);
    }
  }
}

}  // namespace

std::string FieldValue::String() const {
  const auto* reflection = owner->GetReflection();
  return index < 0 ? reflection->GetString(*owner, field)
                   : reflection->GetRepeatedString(*owner, field, index);
}

double FieldValue::Number() const {
  using google::protobuf::Reflection;
  const Reflection& reflection = *owner->GetReflection();
  const auto get = [&](auto single, auto of_list) {
    return static_cast<double>(index < 0 ? (reflection.*single)(*owner, field)
                                         : (reflection.*of_list)(*owner, field, index));
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32);
    case FieldDescriptor::CPPTYPE_UINT32:
      return get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64);
    case FieldDescriptor::CPPTYPE_UINT64:
      return get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble);
    default:
      GOOGLE_LOG(FATAL) << field->full_name() << " is no number of a type that the schema has";
  }
  return 0;
}

std::string FieldValue::Exact() const {
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(*owner, field, index, &text);
  return text;
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

const std::string& NameOf(const FieldDescriptor& field) {
  const std::string& written = field.options().GetExtension(v1::rule).written();
  return written.empty() ? field.name() : written;
}

const FieldDescriptor* BareList(const google::protobuf::Descriptor& type) {
  if (type.field_count() != 1) return nullptr;
  const FieldDescriptor* field = type.field(0);
  return field->options().GetExtension(v1::rule).bare() ? field : nullptr;
}

std::string PathOf(const std::string& parent, const FieldDescriptor& field) {
  return BareList(*field.containing_type()) == &field ? parent : ChildPath(parent, NameOf(field));
}

const FieldDescriptor* FieldOf(const google::protobuf::Descriptor& type, const std::string& key,
                               KeyValue value) {
  const FieldDescriptor* found = nullptr;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    if (NameOf(*field) != key) continue;
    const bool message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    const KeyValue for_it = !message                                      ? KeyValue::kScalar
                            : BareList(*field->message_type()) == nullptr ? KeyValue::kMapping
                                                                          : KeyValue::kList;
    if (found == nullptr || value == for_it) found = field;
  }
  return found;
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
    const auto& value = *type.value(i);
    if (value.number() == 0) continue;
    const std::string& written = value.options().GetExtension(v1::written);
    names.push_back(written.empty() ? absl::AsciiStrToLower(value.name()) : written);
  }
  return names;
}

std::vector<std::string> Alternatives(const google::protobuf::OneofDescriptor& oneof) {
  std::vector<std::string> names;
  for (int i = 0; i < oneof.field_count(); ++i) names.push_back(oneof.field(i)->name());
  return names;
}

}  // namespace muster::jobspec
