// A folder in which a job writes files for others, beside those of other writers.
#ifndef MUSTER_COMMON_EXPORTS_FOLDER_H_
#define MUSTER_COMMON_EXPORTS_FOLDER_H_

#include <string>

#include "absl/status/status.h"

namespace muster::exports {

// Whether `path` is a folder, or may become one: no file is in its place or in the place of a
// folder above it, and it does not lie among a job's checkpoints. FAILED_PRECONDITION otherwise;
// the message says what to do. Changes nothing, and answers for this moment.
absl::Status CheckFolder(const std::string& path);

}  // namespace muster::exports

#endif  // MUSTER_COMMON_EXPORTS_FOLDER_H_
