// Unique identifiers.
#ifndef MUSTER_COMMON_IDS_IDS_H_
#define MUSTER_COMMON_IDS_IDS_H_

#include <string>

namespace muster {

// A random (version 4) UUID in lower case, from the kernel's random source. Thread-safe.
std::string NewUuid();

}  // namespace muster

#endif  // MUSTER_COMMON_IDS_IDS_H_
