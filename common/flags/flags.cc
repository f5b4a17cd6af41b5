#include "common/flags/flags.h"

#include "absl/strings/str_cat.h"

namespace muster {
namespace {

std::string Text(absl::Duration duration) {
  // Abseil writes a zero duration without a unit.
  return duration == absl::ZeroDuration() ? "0s" : absl::FormatDuration(duration);
}

}  // namespace

absl::StatusOr<absl::Duration> ParseDurationFlag(const std::string& flag, const std::string& text,
                                                 absl::Duration least, absl::Duration most) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration >= least && duration <= most) {
    return duration;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " ", text, ": expected a time from ", Text(least), " to ", Text(most)));
}

}  // namespace muster
