#include "coordinator/webhook/answer.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace muster::webhook {

Meaning MeaningOf(const Answer& answer) {
  const int status = answer.status;
  if (status >= 200 && status < 300) return Meaning::kAccepted;
  switch (status) {
    case 408:  // the receiver waited too long
    case 425:  // too early
      return Meaning::kMessageFailed;
    // Errors that an operator can correct: a wrong secret, a proxy, a path that does not exist yet.
    case 401:
    case 403:
    case 404:
    case 407:
    case 429:  // too many requests
    case 503:  // overloaded, or being restarted
      return Meaning::kReceiverFailed;
    default:
      break;
  }
  if (status >= 400 && status < 500) return Meaning::kRefused;
  if (status >= 500 && status < 600) return Meaning::kMessageFailed;
  // No answer, a redirect, or a number that means nothing.
  return Meaning::kReceiverFailed;
}

std::string Describe(const Answer& answer) {
  if (answer.status == 0) return answer.trouble;
  if (answer.status >= 300 && answer.status < 400) {
    return absl::StrCat("answered ", answer.status, ", a redirect, which is not followed");
  }
  return absl::StrCat("answered ", answer.status);
}

std::optional<absl::Duration> ParseRetryAfter(const std::string& value, absl::Time now) {
  int64_t seconds = 0;
  if (absl::SimpleAtoi(value, &seconds)) {
    return seconds < 0 ? std::nullopt : std::optional(absl::Seconds(seconds));
  }
  absl::Time date;
  if (!absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", value, absl::UTCTimeZone(), &date, nullptr)) {
    return std::nullopt;
  }
  return std::max(date - now, absl::ZeroDuration());
}

}  // namespace muster::webhook
