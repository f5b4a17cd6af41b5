#include "worker/train/ranks/failure.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "worker/checkpoint/epoch.h"

namespace muster::train {
namespace {

constexpr char kPayload[] = "muster.dev/cause";

}  // namespace

absl::Status WithCause(absl::Status error, Cause cause) {
  error.SetPayload(kPayload, absl::Cord(absl::StrCat(static_cast<int>(cause))));
  return error;
}

Cause CauseOf(const absl::Status& error) {
  if (checkpoint::NewerGeneration(error).has_value()) return Cause::kStaleEpoch;
  const auto payload = error.GetPayload(kPayload);
  int cause = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &cause)) return Cause::kNone;
  return static_cast<Cause>(cause);
}

FailureKind Classify(const absl::Status& error, Phase phase) {
  switch (CauseOf(error)) {
    case Cause::kFinalSaveFailed:
    case Cause::kStartDoesNotFit:
    case Cause::kCheckpointsUnreadable:
      return FailureKind::kPermanent;
    case Cause::kStaleEpoch:
    case Cause::kNodeFault:
      return FailureKind::kTransient;
    case Cause::kNone:
      break;
  }
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
    // While loading, an input file is damaged, and a restart does not repair the file. Later, the
    // ranks' parameters differ, and a restart from the checkpoint repairs the parameters.
    case absl::StatusCode::kDataLoss:
      return phase == Phase::kCreate ? FailureKind::kPermanent : FailureKind::kTransient;
    default:
      return FailureKind::kTransient;
  }
}

}  // namespace muster::train
