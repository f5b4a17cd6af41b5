// A signature says who wrote a file or a folder: it is the extended attribute user.muster.writer.
// A file that was changed or copied since has no valid signature. Neither has a folder in which
// files were added, removed or renamed, and nothing has a signature on a file system without such
// attributes. Signatures protect from accidents: whoever may write the file may sign it.
//
// Until such files and folders may get their final name, they have a temporary one, which says who
// writes it.
#ifndef MUSTER_COMMON_EXPORTS_SIGNATURE_H_
#define MUSTER_COMMON_EXPORTS_SIGNATURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::exports {

// Best effort. Called when the file has all its bytes, and before it is made durable. `writer`:
// the name of a job, or WriterOf; nothing is signed if it is empty.
void Sign(const std::string& path, const std::string& writer);

// Whether this writer wrote the file or the folder as it is now; false if `writer` is empty.
bool IsSignedBy(const std::string& path, const std::string& writer);

// The writer of what a command of a job writes, in all generations.
std::string WriterOf(const std::string& job_id, int64_t command);

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

#endif  // MUSTER_COMMON_EXPORTS_SIGNATURE_H_
