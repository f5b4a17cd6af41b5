#include "common/rpc/call_limit.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/interceptor.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/steady/now.h"

namespace muster {
namespace {

// The prefix of the number of a connection over a Unix socket.
constexpr char kLocal[] = "local ";

}  // namespace

int CallCounts::BeyondOwn(const Count& count) const {
  return std::max(0, count.all() - limits_.own);
}

CallCounts::Verdict CallCounts::Begins(Connection connection, absl::Time now) {
  ForgetOld(now);
  const auto found = counts_.find(connection);
  const int all = found == counts_.end() ? 0 : found->second.all();
  if (all >= limits_.per_connection) return Verdict::kConnectionFull;
  if (all >= limits_.own) {
    int& shared = SharedBy(connection);
    if (shared >= limits_.shared) return Verdict::kAllFull;
    ++shared;
  }
  ++counts_[connection].begun;
  return Verdict::kAdmitted;
}

void CallCounts::Runs(Connection connection) {
  Count& count = counts_[connection];
  SharedBy(connection) -= BeyondOwn(count);
  if (count.begun_before > 0) {
    --count.begun_before;
  } else if (count.begun > 0) {
    --count.begun;
  }
  ++count.running;
  SharedBy(connection) += BeyondOwn(count);
}

void CallCounts::Ends(Connection connection) {
  const auto found = counts_.find(connection);
  if (found == counts_.end()) return;
  Count& count = found->second;
  SharedBy(connection) -= BeyondOwn(count);
  --count.running;
  SharedBy(connection) += BeyondOwn(count);
  if (count.all() == 0) counts_.erase(found);
}

void CallCounts::ForgetOld(absl::Time now) {
  if (now < period_ + limits_.forgotten_after) return;
  const bool all = now >= period_ + 2 * limits_.forgotten_after;
  period_ = now;
  absl::erase_if(counts_, [this, all](auto& entry) {
    Count& count = entry.second;
    int& shared = SharedBy(entry.first);
    shared -= BeyondOwn(count);
    count.begun_before = all ? 0 : count.begun;
    count.begun = 0;
    shared += BeyondOwn(count);
    return count.all() == 0;
  });
}

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
  // The context of a call of a synchronous service (for example reflection) gets its call only
  // after the interceptors are made.
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
