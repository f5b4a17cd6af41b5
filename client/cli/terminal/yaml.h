// JSON documents as YAML.
#ifndef MUSTER_CLIENT_CLI_TERMINAL_YAML_H_
#define MUSTER_CLIENT_CLI_TERMINAL_YAML_H_

#include <string>

namespace muster::cli {

// The same document in YAML: what reads YAML 1.1 or 1.2 gets the same values from it, keys in the
// same order. Whatever text might be taken for a number, a truth value, a date or nothing is
// quoted. `json` is valid JSON. Ends with a newline.
std::string YamlOfJson(const std::string& json);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_TERMINAL_YAML_H_
