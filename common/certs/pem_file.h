// Files with certificates or a key.
#ifndef MUSTER_COMMON_CERTS_PEM_FILE_H_
#define MUSTER_COMMON_CERTS_PEM_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::certs {

// Certificates and keys are far smaller.
inline constexpr size_t kMaxPemBytes = 1 << 20;

// INVALID_ARGUMENT: no regular file, or larger than kMaxPemBytes. Otherwise the errors of
// files::ReadFile. All name the path.
absl::StatusOr<std::string> ReadPemFile(const std::string& path);

// A file that exists is replaced only if that was asked for, and only a regular one.
enum class IfExists { kRefuse, kReplace };

// ALREADY_EXISTS: `path` exists, and `if_exists` is kRefuse, or `path` is no regular file (a link
// is none).
absl::Status CheckFree(const std::string& path, IfExists if_exists);

// Whoever opens `path` afterwards, also after a crash, finds all of `contents`. No moment passes in
// which the file has more rights than `mode`. One writer per path at a time. Errors: CheckFree's
// and those of common/files/disk.h.
absl::Status WriteNew(const std::string& path, const std::string& contents, mode_t mode,
                      IfExists if_exists);

}  // namespace muster::certs

#endif  // MUSTER_COMMON_CERTS_PEM_FILE_H_
