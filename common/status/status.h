// Status macros (Debian's Abseil has none) and the conversions that every folder needs.
#ifndef MUSTER_COMMON_STATUS_STATUS_H_
#define MUSTER_COMMON_STATUS_STATUS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace muster {

// std::string of a status message (Debian's absl::string_view is not std::string_view).
inline std::string Message(const absl::Status& status) { return std::string(status.message()); }

// The same status with "<context>: " before its message; OK stays OK. Payloads are kept.
inline absl::Status Annotate(const absl::Status& status, const std::string& context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload([&annotated](absl::string_view url, const absl::Cord& payload) {
    annotated.SetPayload(url, payload);
  });
  return annotated;
}

}  // namespace muster

#define MUSTER_CONCAT_INNER(a, b) a##b
#define MUSTER_CONCAT(a, b) MUSTER_CONCAT_INNER(a, b)

// RETURN_IF_ERROR(expression of type absl::Status);
#define RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                  \
    if (absl::Status muster_status = (expr); !muster_status.ok()) return muster_status; \
  } while (false)

// ASSIGN_OR_RETURN(declaration, expression of type absl::StatusOr<T>);
#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_IMPL(MUSTER_CONCAT(muster_statusor_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL(statusor, lhs, expr)         \
  auto statusor = (expr);                                  \
  if (!statusor.ok()) return std::move(statusor).status(); \
  lhs = std::move(statusor).value()

#endif  // MUSTER_COMMON_STATUS_STATUS_H_
