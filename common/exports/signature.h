// Remembers who wrote a file whose format has no place for it, in the extended attribute
// user.muster.writer of the file. A file that was changed or copied since has no valid signature;
// neither has one on a file system without such attributes. It protects from accidents: whoever may
// write the file may sign it.
#ifndef MUSTER_COMMON_EXPORTS_SIGNATURE_H_
#define MUSTER_COMMON_EXPORTS_SIGNATURE_H_

#include <string>

namespace muster::exports {

// Best effort. Called when the file has all its bytes, and before it is made durable.
void Sign(const std::string& path, const std::string& job_name);

// Whether a job of this name wrote the file as it is now.
bool IsSignedBy(const std::string& path, const std::string& job_name);

}  // namespace muster::exports

#endif  // MUSTER_COMMON_EXPORTS_SIGNATURE_H_
