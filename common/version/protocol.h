// The versions of Muster's programs that work together: musterd, agents and workers.
// coordinator/store/schema.h is about databases, and docs/how-to/upgrade.md is for users.
//
// N is this version, 0.4.0, and N-1 is 0.3.0. A musterd serves agents and workers of N and N-1, and
// of the version after N, which can speak to N. It refuses programs of other versions by name.
#ifndef MUSTER_COMMON_VERSION_PROTOCOL_H_
#define MUSTER_COMMON_VERSION_PROTOCOL_H_

#include <cstdint>

namespace muster {

// The protocols of version N; the numbers of N-1 are smaller by one. The hello of an agent or a
// worker gives its protocol, and so does the welcome of musterd. A change to a new version N also
// removes each use with the meaning "knows what came with the former N".
inline constexpr uint32_t kAgentProtocol = 5;
inline constexpr uint32_t kWorkerProtocol = 8;

// Returns whether a program of `theirs` is too old, or too new, for a musterd of `own`.
inline constexpr bool IsTooOld(uint32_t theirs, uint32_t own) { return theirs + 1 < own; }
inline constexpr bool IsTooNew(uint32_t theirs, uint32_t own) { return theirs > own + 1; }

}  // namespace muster

#endif  // MUSTER_COMMON_VERSION_PROTOCOL_H_
