// Reads the beginning of a file that may have no end (a device, a pipe) or is much larger than
// expected.
#ifndef MUSTER_COMMON_FILES_READ_BEGINNING_H_
#define MUSTER_COMMON_FILES_READ_BEGINNING_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace muster::files {

// Returns the first `most` bytes, or all if there are fewer. Waits until a pipe has so many bytes
// or its writers have ended. Errors: those of the system.
absl::StatusOr<std::string> ReadBeginning(const std::string& path, size_t most);

}  // namespace muster::files

#endif  // MUSTER_COMMON_FILES_READ_BEGINNING_H_
