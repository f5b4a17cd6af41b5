// absl::Status <-> grpc::Status without loss: code, message, and the details ErrorInfo and
// SpecProblems (proto/muster/v1/error.proto) in the `grpc-status-details-bin` trailer.
#ifndef MUSTER_COMMON_RPC_ERROR_H_
#define MUSTER_COMMON_RPC_ERROR_H_

#include <grpcpp/support/status.h>

#include <map>
#include <string>

#include "absl/status/status.h"
#include "proto/muster/v1/error.pb.h"

namespace muster {

// A message that is too long for the trailers of a call is cut, with a note at its end.
grpc::Status ToGrpc(const absl::Status& status);
// Drops details that cannot be parsed; code and message stay.
absl::Status FromGrpc(const grpc::Status& status);

// An error with ErrorInfo{reason, domain "muster", metadata}. Long values of the metadata are cut.
absl::Status MakeError(absl::StatusCode code, const std::string& reason, const std::string& message,
                       const std::map<std::string, std::string>& metadata = {});
// The reason in the error's ErrorInfo; empty without one.
std::string ErrorReason(const absl::Status& status);

// The domain in the error's ErrorInfo; empty without one.
std::string ErrorDomain(const absl::Status& status);
// The metadata in the error's ErrorInfo; empty without one.
std::map<std::string, std::string> ErrorMetadata(const absl::Status& status);

// Adds the problems to an error. No effect on OK.
void AttachProblems(absl::Status* status, const v1::SpecProblems& problems);
// The problems in the error; empty if there are none.
v1::SpecProblems Problems(const absl::Status& status);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_ERROR_H_
