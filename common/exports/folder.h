// A folder in which a job writes files for others, beside those of other writers.
#ifndef MUSTER_COMMON_EXPORTS_FOLDER_H_
#define MUSTER_COMMON_EXPORTS_FOLDER_H_

#include <string>

#include "absl/status/status.h"

namespace muster::exports {

// Checks that `path` is a folder, or may become one. No file may be in its place or in the place of
// a folder above it, and `path` must not lie among a job's checkpoints. Changes nothing, and
// answers for this moment. FAILED_PRECONDITION otherwise; the message says what to do.
absl::Status CheckFolder(const std::string& path);

}  // namespace muster::exports

#endif  // MUSTER_COMMON_EXPORTS_FOLDER_H_
