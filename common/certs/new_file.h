// Writes files that nothing else may be lost for: a file that exists is replaced only if that was
// asked for, and only a regular one.
#ifndef MUSTER_COMMON_CERTS_NEW_FILE_H_
#define MUSTER_COMMON_CERTS_NEW_FILE_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"

namespace muster::certs {

enum class IfExists { kRefuse, kReplace };

// ALREADY_EXISTS: there is something of that name, and it is not to be replaced, or it is no
// regular file (a link is none).
absl::Status CheckFree(const std::string& path, IfExists if_exists);

// Whoever opens `path` afterwards, also after a crash, finds all of `contents`. No moment passes in
// which the file has more rights than `mode`. One writer per path at a time. Errors: CheckFree's
// and those of common/files/disk.h.
absl::Status WriteNew(const std::string& path, const std::string& contents, mode_t mode,
                      IfExists if_exists);

}  // namespace muster::certs

#endif  // MUSTER_COMMON_CERTS_NEW_FILE_H_
