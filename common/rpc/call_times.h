// Reports the durations of the calls of a gRPC server. A duration begins when the server begins
// with the call, and ends when the status is handed to gRPC. Reports only calls with one request
// and one answer: a stream is open for as long as its client wants. Calls that the server refuses
// because of their caller or their number are not reported, because the server never begins with
// them.
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
