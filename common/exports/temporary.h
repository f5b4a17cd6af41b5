// The names under which files and folders for others are written until they may get their final
// name.
#ifndef MUSTER_COMMON_EXPORTS_TEMPORARY_H_
#define MUSTER_COMMON_EXPORTS_TEMPORARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::exports {

// Beside `path`: ".model.safetensors.JOB-g3-INCARNATION.tmp". No other process writes a file or
// folder of this name.
std::string TemporaryPath(const std::string& path, const std::string& job_id, int64_t generation,
                          const std::string& incarnation);

// Removes what generations of the job before `generation` left beside `path`: files and folders
// named exactly as TemporaryPath names them, with a UUID as the incarnation, with or without a
// number behind it, and nothing else. Returns the removed names; none if the folder does not exist.
absl::StatusOr<std::vector<std::string>> RemoveStale(const std::string& path,
                                                     const std::string& job_id, int64_t generation);

}  // namespace muster::exports

#endif  // MUSTER_COMMON_EXPORTS_TEMPORARY_H_
