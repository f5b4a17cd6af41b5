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

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/certs/tls_files.h"
#include "common/files/temp_dir.h"
#include "common/process/fd.h"
#include "common/rpc/call_counts.h"
#include "common/rpc/caller.h"
#include "common/rpc/caller_processor.h"
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
    return changed_.Await(mutex_, kTestBound,
                          [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return begun_ >= calls; });
  }
  bool AwaitCancelled(int calls) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return changed_.Await(mutex_, kTestBound, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return cancelled_ >= calls;
    });
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
    EXPECT_TRUE(changed_.Await(mutex_, kTestBound, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return done_ == begun_;
    }));
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
  void TearDown() override { service_.Release(); }  // the server waits for it

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
  // With a connection of its own.
  std::shared_ptr<grpc::Channel> Connect() {
    const certs::TlsFiles files =
        GetParam() == "tls" ? authority_.Issue(certs::Role::kAgent, "one") : certs::TlsFiles();
    return OpenChannel(server_->address(), {}, CredentialsFor(server_->address(), files).value());
  }

  const files::TempDir folder_ = files::TempDir::Short();
  TestAuthority authority_;
  // Null: everybody may do everything.
  Authorizer authorize_;
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
    EXPECT_THAT(refused.error_message(), HasSubstr("the connections of this server together"));
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

// The headers of a call.
std::string Begin(uint32_t stream, const std::string& method) {
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
  constexpr int kHeaders = 1, kEndHeaders = 4;
  return Frame(kHeaders, kEndHeaders, stream, headers);
}

std::string BeginAndReset(uint32_t stream, const std::string& method) {
  const std::string cancel = {0, 0, 0, 8};
  return Begin(stream, method) + Frame(/*RST_STREAM*/ 3, 0, stream, cancel);
}

using RapidReset = CallLimitTest;

// A connection on which a test writes HTTP/2 itself.
class Raw {
 public:
  explicit Raw(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const timeval bound = absl::ToTimeval(kTestBound);
    EXPECT_EQ(setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound)), 0);
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(/*SETTINGS*/ 4, 0, 0, ""));
  }
  void Send(const std::string& bytes) {
    EXPECT_EQ(send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Reads until this comes and `more` bytes after it. The result is the end of what was read: these
  // bytes, or the last one of `wanted`. Empty: the connection ends before, or nothing comes.
  std::string Await(const std::string& wanted, size_t more = 0) {
    while (true) {
      const size_t at = answers_.find(wanted);
      if (at != std::string::npos && answers_.size() >= at + wanted.size() + more) {
        const size_t end = at + wanted.size() + more;
        const std::string found =
            answers_.substr(at + wanted.size() - (more == 0 ? 1 : 0), more == 0 ? 1 : more);
        answers_.erase(0, end);
        return found;
      }
      char bytes[4096];
      const ssize_t count = recv(fd_.get(), bytes, sizeof(bytes), 0);
      if (count <= 0) return "";
      answers_.append(bytes, static_cast<size_t>(count));
    }
  }
  // The server has read all that was sent. `token`: 8 bytes.
  bool AwaitRead(const std::string& token) {
    Send(Frame(/*PING*/ 6, 0, 0, token));
    return !Await(token).empty();
  }

 private:
  const process::Fd fd_;
  std::string answers_;
};

TEST_P(RapidReset, NoMoreCallsRunThanTheLimitAllows) {
  Start({.per_connection = kLimit, .forgotten_after = absl::InfiniteDuration()});
  Raw client(server_->addresses()[0].port);
  std::string flood;
  for (int i = 0; i < 20 * kLimit; ++i) {
    flood += BeginAndReset(static_cast<uint32_t>(2 * i + 1), kAttach);
  }
  client.Send(flood);
  ASSERT_TRUE(client.AwaitRead("flooded!"));
  ASSERT_TRUE(service_.AwaitBegun(kLimit));
  // Calls run in turn: what gRPC still had to run runs before these.
  for (int i = 0; i < kLimit; ++i) {
    EXPECT_EQ(Call(Connect(), "/nowhere").error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  EXPECT_EQ(service_.begun(), kLimit);
}

// A unary call runs when its message is there. These never have one.
TEST_P(RapidReset, CallsThatEndBeforeTheyRunDoNotKeepTheConnectionFull) {
  Start({.per_connection = kLimit, .forgotten_after = absl::ZeroDuration()});
  Raw client(server_->addresses()[0].port);
  uint32_t stream = 1;
  for (int i = 0; i < 3 * kLimit; ++i, stream += 2) {
    client.Send(BeginAndReset(stream, "/grpc.health.v1.Health/Check"));
  }
  ASSERT_TRUE(client.AwaitRead("all read"));
  const std::string exhausted =
                        "\x01"
                        "8",
                    unimplemented =
                        "\x02"
                        "1";  // 12
  // Some of them may not be done yet, and some may have an answer.
  const absl::Time end = absl::Now() + kTestBound;
  std::string status = exhausted;
  while (status != unimplemented && absl::Now() < end) {
    if (status == exhausted) {
      client.Send(Begin(stream, "/nowhere"));
      stream += 2;
    }
    status = client.Await("grpc-status", 2);
    ASSERT_FALSE(status.empty());
  }
  EXPECT_EQ(status, unimplemented);
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

INSTANTIATE_TEST_SUITE_P(OverAPlainPort, RapidReset, testing::Values("insecure"));

}  // namespace
}  // namespace muster
