// JSON documents as YAML.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_YAML_H_
#define MUSTER_CLIENT_CLI_TERMINAL_YAML_H_

#include <string>

namespace muster::cli {

// The same document in YAML: readers of YAML 1.1 and 1.2 get the same values from it, with the keys
// in the same order. A text that a reader might take for a number, a truth value, a date or null is
// quoted. `json` is valid JSON. Ends with a newline.
std::string YamlOfJson(const std::string& json);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_YAML_H_
