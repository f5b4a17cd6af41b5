// The names under which weights are written until the file may get its final name.
#ifndef MUSTER_COMMON_EXPORTS_TEMPORARY_H_
#define MUSTER_COMMON_EXPORTS_TEMPORARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::exports {

// Beside `path`: ".model.safetensors.JOB-g3-INCARNATION.tmp". No other process writes a file of
// this name.
std::string TemporaryPath(const std::string& path, const std::string& job_id, int64_t generation,
                          const std::string& incarnation);

// Removes what generations of the job before `generation` left beside `path`: files named exactly
// as TemporaryPath names them, with a UUID as the incarnation, with or without a number behind it,
// and nothing else. Returns the removed names; none if the folder does not exist.
absl::StatusOr<std::vector<std::string>> RemoveStale(const std::string& path,
                                                     const std::string& job_id, int64_t generation);

}  // namespace muster::exports

#endif  // MUSTER_COMMON_EXPORTS_TEMPORARY_H_
