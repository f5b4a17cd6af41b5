#include "client/cli/terminal/json.h"

#include <google/protobuf/util/json_util.h>

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

}  // namespace muster::cli
