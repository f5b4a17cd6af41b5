// The signature of a file or folder says who wrote it: the extended attribute user.muster.writer.
// Signatures protect from accidents only: anyone who may write the file may sign it. There is no
// valid signature in these cases:
// - The file was changed or copied since.
// - Files in the folder were added, removed or renamed.
// - The file system has no such attributes.
//
// Temporary names say who writes a file or folder before it gets its final name.
#ifndef MUSTER_COMMON_EXPORTS_SIGNATURE_H_
#define MUSTER_COMMON_EXPORTS_SIGNATURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::exports {

// Signs a file, best effort. Call when the file has all its bytes, and before it is made durable.
// `writer`: the name of a job, or WriterOf; empty: nothing is signed.
void Sign(const std::string& path, const std::string& writer);

// Returns whether this writer wrote the present contents of the file or folder; false if `writer`
// is empty.
bool IsSignedBy(const std::string& path, const std::string& writer);

// The writer name for the files that a command of a job writes, in all generations.
std::string WriterOf(const std::string& job_id, int64_t command);

// A path beside `path`: ".model.safetensors.JOB-g3-INCARNATION.tmp". No other process writes a file
// or folder of this name.
std::string TemporaryPath(const std::string& path, const std::string& job_id, int64_t generation,
                          const std::string& incarnation);

// Removes the files that generations of the job before `generation` left beside `path`. These are
// files and folders with exactly a name of TemporaryPath, with a UUID as the incarnation, with or
// without a number at the end. Returns the removed names; none if the folder does not exist.
absl::StatusOr<std::vector<std::string>> RemoveStale(const std::string& path,
                                                     const std::string& job_id, int64_t generation);

}  // namespace muster::exports

#endif  // MUSTER_COMMON_EXPORTS_SIGNATURE_H_
