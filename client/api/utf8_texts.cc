#include "client/api/utf8_texts.h"

#include <google/protobuf/descriptor.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/jobspec/fields.h"
#include "common/utf8/utf8.h"

namespace muster::client {

absl::Status CheckTexts(const google::protobuf::Message& request) {
  absl::Status status;
  jobspec::ForEachValue(request, [&status](const jobspec::FieldValue& value) {
    if (!status.ok() || value.field->type() != google::protobuf::FieldDescriptor::TYPE_STRING) {
      return;
    }
    const std::string text = value.String();
    if (ValidUtf8Prefix(text) == text.size()) return;
    status = absl::InvalidArgumentError(
        absl::StrCat(value.path, ": '", text,
                     "' is not UTF-8; if it is a path, give the file or folder another name"));
  });
  return status;
}

}  // namespace muster::client
