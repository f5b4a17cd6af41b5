// Canonical codes by the names that gRPC writes: "INVALID_ARGUMENT".
#ifndef MUSTER_COMMON_STATUS_CODE_NAME_H_
#define MUSTER_COMMON_STATUS_CODE_NAME_H_

#include <string>

#include "absl/status/status.h"

namespace muster {

inline std::string CodeName(absl::StatusCode code) { return absl::StatusCodeToString(code); }

// The code of a name; kUnknown if no code has the name.
inline absl::StatusCode CodeFromName(const std::string& name) {
  for (int code = 0; code <= 16; ++code) {
    if (absl::StatusCodeToString(static_cast<absl::StatusCode>(code)) == name) {
      return static_cast<absl::StatusCode>(code);
    }
  }
  return absl::StatusCode::kUnknown;
}

}  // namespace muster

#endif  // MUSTER_COMMON_STATUS_CODE_NAME_H_
