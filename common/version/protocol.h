// Which versions of Muster's programs work together. This file says so for musterd, agents and
// workers, and coordinator/store/schema.h for databases. docs/how-to/upgrade.md tells people.
//
// N is this version, 0.4.0, and N-1 is 0.3.0. A musterd serves agents and workers of N and N-1, and
// of the version after N, which knows how to speak to N. Programs that are further apart are
// refused by name.
#ifndef MUSTER_COMMON_VERSION_PROTOCOL_H_
#define MUSTER_COMMON_VERSION_PROTOCOL_H_

#include <cstdint>

namespace muster {

// The protocols of version N. Those of N-1 are smaller by one. The hello of an agent or a worker
// says which one it speaks, and so does the welcome of musterd. Whoever makes a new version N also
// removes each use that means "knows what came with the former N".
inline constexpr uint32_t kAgentProtocol = 5;
inline constexpr uint32_t kWorkerProtocol = 8;

// Whether a program of `theirs` is too old, or too new, for a musterd of `own`.
inline constexpr bool IsTooOld(uint32_t theirs, uint32_t own) { return theirs + 1 < own; }
inline constexpr bool IsTooNew(uint32_t theirs, uint32_t own) { return theirs > own + 1; }

}  // namespace muster

#endif  // MUSTER_COMMON_VERSION_PROTOCOL_H_
