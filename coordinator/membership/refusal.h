// Errors of the cores: a status with a stable reason for programs ("STALE_GENERATION"), without any
// wire type. The service turns the reason into ErrorInfo.
#ifndef MUSTER_COORDINATOR_MEMBERSHIP_REFUSAL_H_
#define MUSTER_COORDINATOR_MEMBERSHIP_REFUSAL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace muster {

inline constexpr char kReasonPayload[] = "muster/reason";

inline absl::Status Refuse(absl::StatusCode code, const std::string& reason,
                           const std::string& message) {
  absl::Status status(code, message);
  status.SetPayload(kReasonPayload, absl::Cord(reason));
  return status;
}

inline absl::Status NoSuchJob(const std::string& id) {
  return Refuse(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "there is no job '" + id + "'");
}

// Empty when the status carries none.
inline std::string RefusalReason(const absl::Status& status) {
  const auto payload = status.GetPayload(kReasonPayload);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace muster

#endif  // MUSTER_COORDINATOR_MEMBERSHIP_REFUSAL_H_
