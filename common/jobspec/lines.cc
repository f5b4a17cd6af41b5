#include "common/jobspec/lines.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/jobspec/fields.h"

namespace muster::jobspec {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// ForEachValue leaves maps out.
void AddMaps(const Message& message, const std::string& path, std::vector<Line>* lines) {
  const auto& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!field.is_map()) continue;
    std::vector<Line> entries;
    for (int at = 0; at < message.GetReflection()->FieldSize(message, &field); ++at) {
      const Message& entry = message.GetReflection()->GetRepeatedMessage(message, &field, at);
      const auto text = [&](const FieldDescriptor* part) {
        return FieldValue{&entry, part, -1, ""}.Exact();
      };
      entries.push_back({absl::StrCat(ChildPath(path, field.name()), "[",
                                      text(field.message_type()->map_key()), "]"),
                         text(field.message_type()->map_value())});
    }
    std::sort(entries.begin(), entries.end(),
              [](const Line& a, const Line& b) { return a.path < b.path; });
    lines->insert(lines->end(), entries.begin(), entries.end());
  }
}

}  // namespace

std::vector<Line> LinesOf(const Message& message) {
  std::vector<Line> lines;
  AddMaps(message, "", &lines);
  ForEachValue(message, [&lines](const FieldValue& value) {
    if (value.field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      lines.push_back({value.path, value.Exact()});
      return;
    }
    lines.push_back({value.path, "{}"});
    AddMaps(value.Message(), value.path, &lines);
  });
  return lines;
}

}  // namespace muster::jobspec
