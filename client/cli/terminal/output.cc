#include "client/cli/terminal/output.h"

#include "absl/strings/str_cat.h"
#include "client/cli/terminal/json.h"
#include "client/cli/terminal/yaml.h"

namespace muster::cli {

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
