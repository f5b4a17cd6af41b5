#include "common/rpc/call_limit.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/server_callback.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/certs/tls_files.h"
#include "common/files/temp_dir.h"
#include "common/process/fd.h"
#include "common/rpc/call_counts.h"
#include "common/rpc/deadline.h"
#include "common/rpc/rpc.h"
#include "common/rpc/test_authority.h"
#include "common/rpc/test_server.h"
#include "common/steady/condition.h"
#include "common/steady/test_bound.h"
#include "proto/muster/v1/agent_service.grpc.pb.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr char kAttach[] = "/muster.v1.AgentService/Attach";
constexpr int kLimit = 50;

// Is not done with a call before it is told to be, whether the client still waits or not.
class Holding final : public v1::AgentService::CallbackService {
 public:
  grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentDirective>* Attach(
      grpc::CallbackServerContext*) override {
    auto* call = new Call(this);
    absl::MutexLock lock(&mutex_);
    ++begun_;
    held_.push_back(call);
    changed_.Changed();
    return call;
  }

  int begun() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return begun_;
  }
  // Whether so many calls have begun, and been cancelled, in time.
  bool AwaitBegun(int calls) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return changed_.Await(mutex_, kTestBound, [&] { return begun_ >= calls; });
  }
  bool AwaitCancelled(int calls) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return changed_.Await(mutex_, kTestBound, [&] { return cancelled_ >= calls; });
  }
  // Ends what is held, and returns when gRPC is done with it.
  void Release() ABSL_LOCKS_EXCLUDED(mutex_) {
    std::vector<Call*> calls;
    {
      absl::MutexLock lock(&mutex_);
      calls.swap(held_);
    }
    for (Call* call : calls) call->Finish(grpc::Status::OK);
    absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(changed_.Await(mutex_, kTestBound, [&] { return done_ == begun_; }));
  }

 private:
  class Call final : public grpc::ServerBidiReactor<v1::AgentMessage, v1::AgentDirective> {
   public:
    explicit Call(Holding* service) : service_(service) {}
    void OnCancel() override { service_->Count(&service_->cancelled_); }
    void OnDone() override {
      Holding* const service = service_;
      delete this;
      service->Count(&service->done_);
    }

   private:
    Holding* const service_;
  };

  void Count(int* what) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    ++*what;
    changed_.Changed();
  }

  absl::Mutex mutex_;
  SteadyCondition changed_;
  std::vector<Call*> held_ ABSL_GUARDED_BY(mutex_);
  int begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int cancelled_ ABSL_GUARDED_BY(mutex_) = 0;
  int done_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A client's end of a call of Attach.
class Attached final : public grpc::ClientBidiReactor<v1::AgentMessage, v1::AgentDirective> {
 public:
  explicit Attached(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(v1::AgentService::NewStub(channel)) {
    context_.set_deadline(DeadlineAfter(kTestBound));
    stub_->async()->Attach(&context_, this);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }
  // How it ended.
  grpc::Status Await() {
    absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(changed_.Await(mutex_, 2 * kTestBound, [&] { return done_; }));
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
  void TearDown() override { service_.Release(); }  // the server waits for it

  void Start(const CallLimits& limits) {
    ServerOptions options{.calls = limits};
    if (GetParam() == "unix") options.listen = {absl::StrCat("unix:", folder_.Path("socket"))};
    if (GetParam() != "unix") options.listen = {"127.0.0.1:0"};
    if (GetParam() == "tls") options.tls = authority_.Issue(certs::Role::kCoordinator, "main");
    options.insecure = GetParam() == "insecure";
    auto server = Server::Start(options, {&service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // With a connection of its own.
  std::shared_ptr<grpc::Channel> Connect() {
    const certs::TlsFiles files =
        GetParam() == "tls" ? authority_.Issue(certs::Role::kAgent, "one") : certs::TlsFiles();
    return OpenChannel(server_->address(), {}, CredentialsFor(server_->address(), files).value());
  }

  const files::TempDir folder_ = files::TempDir::Short();
  TestAuthority authority_;
  Holding service_;
  std::unique_ptr<Server> server_;
};

TEST_P(CallLimitTest, ACallThatTheClientHasCancelledCountsUntilTheServerIsDone) {
  // A call that runs is never forgotten.
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
  // Another client is heard.
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
    EXPECT_THAT(refused.error_message(), HasSubstr("all connections of this server together"));
  }
  service_.Release();
  for (const auto& call : calls) EXPECT_EQ(call->Await().error_code(), grpc::StatusCode::OK);
}

// Whatever gRPC does with a call, it is done with it: otherwise a client would be refused for ever.
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

INSTANTIATE_TEST_SUITE_P(OverEachTransport, CallLimitTest,
                         testing::Values("unix", "insecure", "tls"),
                         [](const auto& info) { return info.param; });

// HTTP/2 (RFC 9113), with the headers not compressed (RFC 7541).
std::string Frame(int type, int flags, uint32_t stream, const std::string& payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(payload.size() >> shift & 0xff);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift & 0xff);
  return frame + payload;
}

std::string BeginAndReset(uint32_t stream, const std::string& method) {
  std::string headers;
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{":method", "POST"},
                                                        {":scheme", "http"},
                                                        {":path", method},
                                                        {":authority", "localhost"},
                                                        {"content-type", "application/grpc"},
                                                        {"te", "trailers"}}) {
    headers += std::string(1, '\0');
    headers += static_cast<char>(name.size());
    headers += name;
    headers += static_cast<char>(value.size());
    headers += value;
  }
  constexpr int kHeaders = 1, kReset = 3, kEndHeaders = 4;
  const std::string cancel = {0, 0, 0, 8};
  return Frame(kHeaders, kEndHeaders, stream, headers) + Frame(kReset, 0, stream, cancel);
}

using RapidReset = CallLimitTest;

TEST_P(RapidReset, NoMoreCallsRunThanTheLimitAllows) {
  Start({.per_connection = kLimit});
  const process::Fd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(server_->addresses()[0].port));
  const timeval bound = absl::ToTimeval(kTestBound);
  ASSERT_EQ(setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound)), 0);
  ASSERT_EQ(connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);

  constexpr int kSettings = 4, kPing = 6, kCalls = 20 * kLimit;
  std::string flood = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "");
  for (int i = 0; i < kCalls; ++i) {
    flood += BeginAndReset(static_cast<uint32_t>(2 * i + 1), kAttach);
  }
  const std::string token = "flooded!";
  flood += Frame(kPing, 0, 0, token);
  ASSERT_EQ(send(connection.get(), flood.data(), flood.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(flood.size()));
  // The answer to the ping: gRPC has read all calls.
  std::string answers;
  while (answers.find(token) == std::string::npos) {
    char bytes[4096];
    const ssize_t count = recv(connection.get(), bytes, sizeof(bytes), 0);
    ASSERT_GT(count, 0);
    answers.append(bytes, static_cast<size_t>(count));
  }
  ASSERT_TRUE(service_.AwaitBegun(kLimit));
  // Calls run in turn: what gRPC still had to run runs before these.
  for (int i = 0; i < kLimit; ++i) {
    EXPECT_EQ(Call(Connect(), "/nowhere").error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  EXPECT_EQ(service_.begun(), kLimit);
}

INSTANTIATE_TEST_SUITE_P(OverAPlainPort, RapidReset, testing::Values("insecure"));

}  // namespace
}  // namespace muster
