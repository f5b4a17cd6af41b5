// Errors of the coordinator's pure parts: a status with a stable reason for programs
// ("STALE_GENERATION") and with its subjects (About), without any wire type. The service turns both
// into ErrorInfo.
#ifndef MUSTER_COORDINATOR_MEMBERSHIP_REFUSAL_H_
#define MUSTER_COORDINATOR_MEMBERSHIP_REFUSAL_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace muster {

inline constexpr char kReasonPayload[] = "muster/reason";
inline constexpr char kAboutPayload[] = "muster/about/";

// The subjects of an error: "job", "node", "operation", "field" (of the request), "limit", "found".
using About = std::map<std::string, std::string>;

// Adds the subjects that the status does not have yet. No effect on OK.
inline absl::Status With(absl::Status status, const About& about) {
  for (const auto& [what, value] : about) {
    const std::string url = absl::StrCat(kAboutPayload, what);
    if (!status.ok() && !status.GetPayload(url).has_value()) {
      status.SetPayload(url, absl::Cord(value));
    }
  }
  return status;
}

inline absl::Status Refuse(absl::StatusCode code, const std::string& reason,
                           const std::string& message, const About& about = {}) {
  absl::Status status(code, message);
  status.SetPayload(kReasonPayload, absl::Cord(reason));
  return With(std::move(status), about);
}

// Returns the subject "limit" with this value.
inline About LimitOf(uint64_t limit) { return {{"limit", absl::StrCat(limit)}}; }

inline absl::Status NoSuchJob(const std::string& id) {
  return Refuse(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "there is no job '" + id + "'",
                {{"job", id}});
}

// Returns the error of a call whose client does not wait for its answer any more.
inline absl::Status ClientGone() {
  return Refuse(absl::StatusCode::kCancelled, "CLIENT_GONE", "the client has gone");
}

// Returns the reason; empty if the status carries none.
inline std::string RefusalReason(const absl::Status& status) {
  const auto payload = status.GetPayload(kReasonPayload);
  return payload.has_value() ? std::string(*payload) : std::string();
}

inline About AboutOf(const absl::Status& status) {
  About about;
  status.ForEachPayload([&about](absl::string_view url, const absl::Cord& value) {
    if (absl::StartsWith(url, kAboutPayload)) {
      about[std::string(url.substr(sizeof(kAboutPayload) - 1))] = std::string(value);
    }
  });
  return about;
}

}  // namespace muster

#endif  // MUSTER_COORDINATOR_MEMBERSHIP_REFUSAL_H_
