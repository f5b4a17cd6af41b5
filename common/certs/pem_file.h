// Files with certificates or a key.
#ifndef MUSTER_COMMON_CERTS_PEM_FILE_H_
#define MUSTER_COMMON_CERTS_PEM_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::certs {

// The largest size of a PEM file. Certificates and keys are far smaller.
inline constexpr size_t kMaxPemBytes = 1 << 20;

// Reads a PEM file. INVALID_ARGUMENT: not a regular file, or larger than kMaxPemBytes. Other
// errors: those of files::ReadFile. All messages name the path.
absl::StatusOr<std::string> ReadPemFile(const std::string& path);

// The treatment of a file that exists. kReplace replaces only a regular file.
enum class IfExists { kRefuse, kReplace };

// ALREADY_EXISTS: `path` exists, and `if_exists` is kRefuse, or `path` is not a regular file (a
// link is not).
absl::Status CheckFree(const std::string& path, IfExists if_exists);

// Writes `contents` to `path`. A reader of `path` afterwards, also after a crash, finds all of
// `contents`. The file never has more rights than `mode`. One writer per path at a time. Errors:
// CheckFree's and those of common/files/disk.h.
absl::Status WriteNew(const std::string& path, const std::string& contents, mode_t mode,
                      IfExists if_exists);

}  // namespace muster::certs

#endif  // MUSTER_COMMON_CERTS_PEM_FILE_H_
