// The version of this program, from common/version/version.bzl.
#ifndef MUSTER_COMMON_VERSION_VERSION_H_
#define MUSTER_COMMON_VERSION_VERSION_H_

namespace muster {

// "0.2.0".
const char* Version();

// The environment variable by which an agent tells a worker its own version: the two must be of one
// version.
inline constexpr char kAgentVersionVariable[] = "MUSTER_AGENT_VERSION";

}  // namespace muster

#endif  // MUSTER_COMMON_VERSION_VERSION_H_
