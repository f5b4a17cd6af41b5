#include "common/rpc/call_times.h"

#include <grpcpp/support/interceptor.h>

#include <utility>

#include "common/steady/now.h"

namespace muster {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

class TimedCall final : public Interceptor {
 public:
  TimedCall(std::shared_ptr<const OnCallEnded> told, std::string method)
      : told_(std::move(told)), method_(std::move(method)), begun_(SteadyNow()) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const auto code = static_cast<absl::StatusCode>(methods->GetSendStatus().error_code());
      (*told_)({.method = method_, .code = code, .duration = SteadyNow() - begun_});
    }
    methods->Proceed();
  }

 private:
  const std::shared_ptr<const OnCallEnded> told_;
  const std::string method_;
  const absl::Time begun_;
};

class TimedCalls final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit TimedCalls(OnCallEnded told)
      : told_(std::make_shared<const OnCallEnded>(std::move(told))) {}
  Interceptor* CreateServerInterceptor(ServerRpcInfo* call) override {
    if (call->type() != ServerRpcInfo::Type::UNARY) return nullptr;
    return new TimedCall(told_, call->method());
  }

 private:
  const std::shared_ptr<const OnCallEnded> told_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> TimeCalls(OnCallEnded told) {
  return std::make_unique<TimedCalls>(std::move(told));
}

}  // namespace muster
