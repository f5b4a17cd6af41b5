// Durations as values of command-line flags: "90s", "1h30m".
#ifndef MUSTER_COMMON_FLAGS_DURATION_H_
#define MUSTER_COMMON_FLAGS_DURATION_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace muster {

// The value of `flag`. INVALID_ARGUMENT names the flag, its text and the range: it is not a
// duration, or is outside of the range (both ends are allowed).
absl::StatusOr<absl::Duration> ParseDurationFlag(const std::string& flag, const std::string& text,
                                                 absl::Duration least, absl::Duration most);

}  // namespace muster

#endif  // MUSTER_COMMON_FLAGS_DURATION_H_
