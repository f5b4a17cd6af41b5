#include "worker/train/failure.h"

namespace muster::train {

FailureKind Classify(const absl::Status& error, Phase phase) {
  switch (error.code()) {
    // The communicator's errors: a peer is gone, or does not answer.
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      return FailureKind::kConsequence;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return FailureKind::kPermanent;
    // While loading: a damaged input file, which stays damaged. Later: ranks that drifted apart, which a
    // fresh start from the checkpoint mends.
    case absl::StatusCode::kDataLoss:
      return phase == Phase::kCreate ? FailureKind::kPermanent : FailureKind::kTransient;
    default:
      return FailureKind::kTransient;
  }
}

}  // namespace muster::train
