// Durations as in job files: "90s", "10m", "1h30m".
#ifndef MUSTER_COMMON_JOBSPEC_DURATION_H_
#define MUSTER_COMMON_JOBSPEC_DURATION_H_

#include <optional>
#include <string>

#include "absl/time/time.h"

namespace muster::jobspec {

inline constexpr char kAllowedDurations[] =
    "a number above 0 with its unit, such as 90s, 10m or 1h30m";

// Absent unless the text is a duration above 0 and not infinite.
inline std::optional<absl::Duration> DurationOf(const std::string& text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration)) return std::nullopt;
  if (duration <= absl::ZeroDuration() || duration >= absl::Hours(1000000)) return std::nullopt;
  return duration;
}

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_DURATION_H_
