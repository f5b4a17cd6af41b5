#include "common/rpc/call_limit.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/interceptor.h>

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/steady/now.h"

namespace muster {
namespace {

// Before the number of a connection over a Unix socket.
constexpr char kLocal[] = "local ";

}  // namespace

std::optional<CallCounts::Connection> ConnectionNumber(absl::string_view value) {
  const bool local = absl::ConsumePrefix(&value, kLocal);
  int64_t number;
  if (!absl::SimpleAtoi(value, &number)) return std::nullopt;
  return CallCounts::Connection(local ? Transport::kLocal : Transport::kTcp, number);
}

std::optional<CallCounts::Connection> ConnectionNumber(const grpc::AuthContext& connection) {
  const std::vector<grpc::string_ref> values = connection.FindPropertyValues(kConnectionNumber);
  if (values.empty()) return std::nullopt;
  return ConnectionNumber(absl::string_view(values.front().data(), values.front().size()));
}

std::string CallLimit::NewConnection(Transport transport) {
  absl::MutexLock lock(&mutex_);
  return absl::StrCat(transport == Transport::kLocal ? kLocal : "", ++last_);
}

absl::Status CallLimit::Begins(std::optional<CallCounts::Connection> connection) {
  if (!connection.has_value()) return absl::InternalError("this connection has no number");
  absl::MutexLock lock(&mutex_);
  switch (counts_.Begins(*connection, SteadyNow())) {
    case CallCounts::Verdict::kAdmitted:
      break;
    case CallCounts::Verdict::kConnectionFull:
      return absl::ResourceExhaustedError(
          "this connection has begun too many calls with which the server is not done yet; calls "
          "that were cancelled may be among them. Begin fewer calls at a time");
    case CallCounts::Verdict::kAllFull:
      return absl::ResourceExhaustedError(
          "the connections of this server together have begun too many calls with which it is not "
          "done yet. Begin fewer calls at a time, or try again later");
  }
  return absl::OkStatus();
}

// Lives until gRPC is done with its call.
class CallLimit::RunningCall final : public grpc::experimental::Interceptor {
 public:
  RunningCall(std::shared_ptr<CallLimit> limit, grpc::ServerContextBase* context)
      : limit_(std::move(limit)), context_(context) {
    RunsOnce();
  }
  ~RunningCall() override {
    if (!connection_.has_value()) return;
    absl::MutexLock lock(&limit_->mutex_);
    limit_->counts_.Ends(*connection_);
  }
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    RunsOnce();
    methods->Proceed();
  }

 private:
  // The context of a call of a synchronous service (reflection is one) gets its call only after the
  // interceptors are made.
  void RunsOnce() {
    if (known_ || context_->c_call() == nullptr) return;
    known_ = true;
    connection_ = ConnectionNumber(*context_->auth_context());
    if (!connection_.has_value()) return;
    absl::MutexLock lock(&limit_->mutex_);
    limit_->counts_.Runs(*connection_);
  }

  const std::shared_ptr<CallLimit> limit_;
  grpc::ServerContextBase* const context_;
  bool known_ = false;
  std::optional<CallCounts::Connection> connection_;
};

class CallLimit::RunningCalls final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit RunningCalls(std::shared_ptr<CallLimit> limit) : limit_(std::move(limit)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override {
    return new RunningCall(limit_, call->server_context());
  }

 private:
  const std::shared_ptr<CallLimit> limit_;
};

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CallLimit::Interceptors(
    std::shared_ptr<CallLimit> limit) {
  return std::make_unique<RunningCalls>(std::move(limit));
}

}  // namespace muster
