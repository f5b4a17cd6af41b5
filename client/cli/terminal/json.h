// API messages as protobuf JSON, with the names of the proto files (snake_case).
#ifndef MUSTER_CLIENT_CLI_TERMINAL_JSON_H_
#define MUSTER_CLIENT_CLI_TERMINAL_JSON_H_

#include <google/protobuf/message.h>

#include <string>

namespace muster::cli {

enum class JsonForm {
  kPretty,  // over several lines
  kLine,    // for streams: one object per line
};

// Ends with a newline. Contains numbers that are zero and texts that are empty, too, but fields
// with presence (`optional`, messages) only if they are set.
std::string Json(const google::protobuf::Message& message, JsonForm form);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_JSON_H_
