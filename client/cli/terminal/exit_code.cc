#include "client/cli/terminal/exit_code.h"

#include "common/rpc/error.h"

namespace muster::cli {

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kDone;
    case absl::StatusCode::kInvalidArgument:
      return kUsage;
    case absl::StatusCode::kDeadlineExceeded:
      return kTimedOut;
    case absl::StatusCode::kNotFound:
      // Errors of files on this machine have no reason.
      return ErrorReason(status).empty() ? kOtherError : kNotFound;
    case absl::StatusCode::kUnavailable:
      return kUnreachable;
    case absl::StatusCode::kCancelled:
      return kInterrupted;
    default:
      return kOtherError;
  }
}

ExitCode ExitCodeOf(v1::Job::State state) {
  switch (state) {
    case v1::Job::SUCCEEDED:
      return kDone;
    case v1::Job::FAILED:
      return kJobFailed;
    case v1::Job::CANCELLED:
      return kJobCancelled;
    default:
      return kOtherError;
  }
}

}  // namespace muster::cli
