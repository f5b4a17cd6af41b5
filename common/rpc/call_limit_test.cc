#include "common/rpc/call_limit.h"

#include <gmock/gmock.h>
#include <grpcpp/support/client_callback.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/certs/tls_files.h"
#include "common/files/temp_dir.h"
#include "common/rpc/address.h"
#include "common/rpc/caller.h"
#include "common/rpc/caller_processor.h"
#include "common/rpc/deadline.h"
#include "common/rpc/holding_service.h"
#include "common/rpc/rpc.h"
#include "common/rpc/test_authority.h"
#include "common/rpc/test_server.h"
#include "common/steady/condition.h"
#include "common/steady/test_bound.h"
#include "proto/muster/v1/agent_service.grpc.pb.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr int kLimit = 50;

// The client's end of a call of Attach.
class Attached final : public grpc::ClientBidiReactor<v1::AgentMessage, v1::AgentDirective> {
 public:
  explicit Attached(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(v1::AgentService::NewStub(channel)) {
    context_.set_deadline(DeadlineAfter(kTestBound));
    stub_->async()->Attach(&context_, this);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }
  // Returns the status with which the call ended.
  grpc::Status Await() {
    absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(changed_.Await(mutex_, 2 * kTestBound,
                               [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return done_; }));
    return status_;
  }
  void OnDone(const grpc::Status& status) override {
    absl::MutexLock lock(&mutex_);
    status_ = status;
    done_ = true;
    changed_.Changed();
  }

 private:
  const std::unique_ptr<v1::AgentService::Stub> stub_;
  grpc::ClientContext context_;
  absl::Mutex mutex_;
  SteadyCondition changed_;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

class CallLimitTest : public testing::TestWithParam<std::string> {
 protected:
  void TearDown() override { service_.Release(); }  // the server waits for the held calls

  void Start(const CallLimits& limits) {
    ServerOptions options{.calls = limits};
    if (authorize_ != nullptr) options.authorize = authorize_;
    if (GetParam() == "unix") options.listen = {absl::StrCat("unix:", folder_.Path("socket"))};
    if (GetParam() != "unix") options.listen = {"127.0.0.1:0"};
    if (GetParam() == "tls") options.tls = authority_.Issue(certs::Role::kCoordinator, "main");
    options.insecure = GetParam() == "insecure";
    auto server = Server::Start(options, {&service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // Makes a channel with a separate connection.
  std::shared_ptr<grpc::Channel> Connect() {
    const certs::TlsFiles files =
        GetParam() == "tls" ? authority_.Issue(certs::Role::kAgent, "one") : certs::TlsFiles();
    return OpenChannel(server_->address(), {}, CredentialsFor(server_->address(), files).value());
  }

  const files::TempDir folder_ = files::TempDir::Short();
  TestAuthority authority_;
  // The authorizer. Null: everybody may do everything.
  Authorizer authorize_;
  HoldingService service_;
  std::unique_ptr<Server> server_;
};

TEST_P(CallLimitTest, ACallThatTheClientHasCancelledCountsUntilTheServerIsDone) {
  // A running call is never forgotten.
  Start({.per_connection = kLimit, .forgotten_after = absl::ZeroDuration()});
  const auto channel = Connect();
  std::vector<std::unique_ptr<Attached>> calls;
  for (int i = 0; i < kLimit; ++i) calls.push_back(std::make_unique<Attached>(channel));
  ASSERT_TRUE(service_.AwaitBegun(kLimit));
  for (const auto& call : calls) call->Cancel();
  for (const auto& call : calls) {
    EXPECT_EQ(call->Await().error_code(), grpc::StatusCode::CANCELLED);
  }
  ASSERT_TRUE(service_.AwaitCancelled(kLimit));

  const grpc::Status refused = Attached(channel).Await();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << refused.error_message();
  EXPECT_THAT(refused.error_message(), HasSubstr("this connection has begun too many calls"));
  EXPECT_EQ(service_.begun(), kLimit);
  // The server accepts another client.
  EXPECT_EQ(Call(Connect(), "/muster.v1.AgentService/None").error_code(),
            grpc::StatusCode::UNIMPLEMENTED);

  service_.Release();
  Attached after(channel);
  EXPECT_TRUE(service_.AwaitBegun(kLimit + 1));
  service_.Release();
  EXPECT_EQ(after.Await().error_code(), grpc::StatusCode::OK);
}

TEST_P(CallLimitTest, ConnectionsShareWhatIsBeyondTheirOwnCalls) {
  Start({.per_connection = kLimit, .own = 1, .shared = 3});
  const auto first = Connect();
  std::vector<std::unique_ptr<Attached>> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(std::make_unique<Attached>(first));
  ASSERT_TRUE(service_.AwaitBegun(4));
  const auto second = Connect();
  calls.push_back(std::make_unique<Attached>(second));
  ASSERT_TRUE(service_.AwaitBegun(5));
  for (const auto& channel : {first, second}) {
    const grpc::Status refused = Attached(channel).Await();
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(refused.error_message(), HasSubstr("the connections of this server together"));
  }
  service_.Release();
  for (const auto& call : calls) EXPECT_EQ(call->Await().error_code(), grpc::StatusCode::OK);
}

// A call ends for the limit whatever gRPC does with it: otherwise a client would be refused for
// ever.
TEST_P(CallLimitTest, CallsOfEveryKindOneAfterTheOtherAreAllAnswered) {
  Start({.per_connection = kLimit});
  const auto channel = Connect();
  struct Kind {
    std::string method;
    grpc::StatusCode code;
  };
  const std::vector<Kind> kinds = {
      {"/muster.v1.AgentService/SendFile", grpc::StatusCode::UNIMPLEMENTED},
      {"/muster.v1.AgentService/None", grpc::StatusCode::UNIMPLEMENTED},
      {"/nowhere", grpc::StatusCode::UNIMPLEMENTED},
      {"/grpc.health.v1.Health/Check", grpc::StatusCode::OK},
  };
  for (const Kind& kind : kinds) {
    for (int i = 0; i < 3 * kLimit; ++i) {
      const grpc::Status status = Call(channel, kind.method);
      ASSERT_EQ(status.error_code(), kind.code)
          << kind.method << " " << i << ": " << status.error_message();
    }
  }
  for (int i = 0; i < 3 * kLimit; ++i) {
    Attached call(channel);
    ASSERT_TRUE(service_.AwaitBegun(i + 1));
    call.Cancel();
    ASSERT_EQ(call.Await().error_code(), grpc::StatusCode::CANCELLED) << i;
    service_.Release();
  }
}

TEST_P(CallLimitTest, ACallThatTheCallerMayNotMakeDoesNotCount) {
  if (GetParam() == "insecure") GTEST_SKIP() << "everybody may do everything";
  authorize_ = [](const Caller&, const std::string& method) {
    return method == "/nowhere" ? absl::PermissionDeniedError("not you") : absl::OkStatus();
  };
  Start({.per_connection = kLimit, .forgotten_after = absl::InfiniteDuration()});
  const auto channel = Connect();
  for (int i = 0; i < 3 * kLimit; ++i) {
    ASSERT_EQ(Call(channel, "/nowhere").error_code(), grpc::StatusCode::PERMISSION_DENIED) << i;
  }
  EXPECT_EQ(Call(channel, "/elsewhere").error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

INSTANTIATE_TEST_SUITE_P(OverEachTransport, CallLimitTest,
                         testing::Values("unix", "insecure", "tls"),
                         [](const auto& info) { return info.param; });

// A client that floods the port does not keep out the programs of this machine.
TEST(CallLimit, APortAndASocketDoNotShare) {
  const files::TempDir folder = files::TempDir::Short();
  HoldingService service;
  ServerOptions options{.listen = {"127.0.0.1:0", absl::StrCat("unix:", folder.Path("socket"))},
                        .insecure = true,
                        .calls = {.own = 1, .shared = 3}};
  const auto server = Server::Start(options, {&service});
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<std::unique_ptr<Attached>> calls;
  for (const Address& address : (*server)->addresses()) {
    const auto channel = OpenChannel(ToString(address));
    for (int i = 0; i < 4; ++i) calls.push_back(std::make_unique<Attached>(channel));
    EXPECT_TRUE(service.AwaitBegun(static_cast<int>(calls.size()))) << ToString(address);
    EXPECT_EQ(Attached(channel).Await().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  service.Release();
  for (const auto& call : calls) EXPECT_EQ(call->Await().error_code(), grpc::StatusCode::OK);
}

}  // namespace
}  // namespace muster
