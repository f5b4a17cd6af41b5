// Tells how long the calls of a gRPC server took. A call takes from when the server begins with it
// until its status is handed to gRPC. Calls with one request and one answer are told, because a
// stream is open for as long as its client wants. Calls that the server refuses because of who
// makes them, or because there are too many of them, are not told: they end before they have begun.
#ifndef MUSTER_COMMON_RPC_CALL_TIMES_H_
#define MUSTER_COMMON_RPC_CALL_TIMES_H_

#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace muster {

struct EndedCall {
  // "/muster.v1.JobService/GetJob".
  std::string method;
  absl::StatusCode code = absl::StatusCode::kOk;
  absl::Duration duration;
};

// Runs on gRPC's threads, several at a time; must not wait.
using OnCallEnded = std::function<void(const EndedCall& call)>;

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> TimeCalls(OnCallEnded told);

}  // namespace muster

#endif  // MUSTER_COMMON_RPC_CALL_TIMES_H_
