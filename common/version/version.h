// The version of this program, from common/version/version.bzl.
#ifndef MUSTER_COMMON_VERSION_VERSION_H_
#define MUSTER_COMMON_VERSION_VERSION_H_

#include <string_view>

namespace muster {

// "0.2.0".
const char* Version();

// Returns whether two versions differ in their last part at most, and so speak one protocol.
inline bool SameMinorVersion(std::string_view a, std::string_view b) {
  return a.substr(0, a.rfind('.')) == b.substr(0, b.rfind('.'));
}

// The environment variable by which an agent tells a worker the agent's version. Both must have the
// same minor version.
inline constexpr char kAgentVersionVariable[] = "MUSTER_AGENT_VERSION";

}  // namespace muster

#endif  // MUSTER_COMMON_VERSION_VERSION_H_
