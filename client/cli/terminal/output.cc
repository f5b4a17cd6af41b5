#include "client/cli/terminal/output.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "client/cli/terminal/yaml.h"

namespace muster::cli {

std::string Json(const google::protobuf::Message& message, JsonForm form) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  options.add_whitespace = form == JsonForm::kPretty;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  // Only a broken Any or Timestamp can fail: then the result is an empty object, not half of one.
  if (!status.ok()) text = "{}";
  if (text.empty() || text.back() != '\n') text += '\n';
  return text;
}

std::string Document(const google::protobuf::Message& message, Output output) {
  return Document(Json(message, JsonForm::kPretty), output);
}

std::string Document(const std::string& json, Output output) {
  return output == Output::kYaml ? YamlOfJson(json) : json;
}

std::string StreamItem(const google::protobuf::Message& message, Output output) {
  const std::string json = Json(message, JsonForm::kLine);
  return output == Output::kYaml ? absl::StrCat("---\n", YamlOfJson(json)) : json;
}

}  // namespace muster::cli
