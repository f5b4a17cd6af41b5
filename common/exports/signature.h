// A signature says who wrote a file or a folder: it is the extended attribute user.muster.writer.
// A file that was changed or copied since has no valid signature. Neither has a folder in which
// files were added, removed or renamed, and nothing has a signature on a file system without such
// attributes. Signatures protect from accidents: whoever may write the file may sign it.
#ifndef MUSTER_COMMON_EXPORTS_SIGNATURE_H_
#define MUSTER_COMMON_EXPORTS_SIGNATURE_H_

#include <cstdint>
#include <string>

namespace muster::exports {

// Best effort. Called when the file has all its bytes, and before it is made durable. `writer`:
// the name of a job, or WriterOf; nothing is signed if it is empty.
void Sign(const std::string& path, const std::string& writer);

// Whether this writer wrote the file or the folder as it is now; false if `writer` is empty.
bool IsSignedBy(const std::string& path, const std::string& writer);

// The writer of what a command of a job writes, in all generations.
std::string WriterOf(const std::string& job_id, int64_t command);

}  // namespace muster::exports

#endif  // MUSTER_COMMON_EXPORTS_SIGNATURE_H_
