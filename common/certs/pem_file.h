// Reads a file with certificates or a key.
#ifndef MUSTER_COMMON_CERTS_PEM_FILE_H_
#define MUSTER_COMMON_CERTS_PEM_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace muster::certs {

// Certificates and keys are far smaller.
inline constexpr size_t kMaxPemBytes = 1 << 20;

// INVALID_ARGUMENT: no regular file, or larger than kMaxPemBytes. Otherwise the errors of
// files::ReadFile. All name the path.
absl::StatusOr<std::string> ReadPemFile(const std::string& path);

}  // namespace muster::certs

#endif  // MUSTER_COMMON_CERTS_PEM_FILE_H_
