// Calls that a client begins and resets at once. A client of gRPC does not do so.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/process/fd.h"
#include "common/rpc/call_limit.h"
#include "common/rpc/holding_service.h"
#include "common/rpc/rpc.h"
#include "common/rpc/test_server.h"
#include "common/steady/test_bound.h"

namespace muster {
namespace {

constexpr int kLimit = 50;

// A frame of HTTP/2 (RFC 9113), with headers that are not compressed (RFC 7541).
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
  // Reads until `wanted` has come, and `more` bytes after it. Returns these bytes, or the last byte
  // of `wanted`. Empty: the connection ends earlier, or nothing comes.
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
  // Waits until the server has read all that was sent. `token`: 8 bytes.
  bool AwaitRead(const std::string& token) {
    Send(Frame(/*PING*/ 6, 0, 0, token));
    return !Await(token).empty();
  }

 private:
  const process::Fd fd_;
  std::string answers_;
};

class RapidReset : public testing::Test {
 protected:
  void TearDown() override { service_.Release(); }

  void Start(const CallLimits& limits) {
    ServerOptions options = ServerOptions::InsecureLoopback();
    options.calls = limits;
    auto server = Server::Start(options, {&service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  HoldingService service_;
  std::unique_ptr<Server> server_;
};

TEST_F(RapidReset, NoMoreCallsRunThanTheLimitAllows) {
  Start({.per_connection = kLimit, .forgotten_after = absl::InfiniteDuration()});
  Raw client(server_->addresses()[0].port);
  std::string flood;
  for (int i = 0; i < 20 * kLimit; ++i) {
    flood += BeginAndReset(static_cast<uint32_t>(2 * i + 1), "/muster.v1.AgentService/Attach");
  }
  client.Send(flood);
  ASSERT_TRUE(client.AwaitRead("flooded!"));
  ASSERT_TRUE(service_.AwaitBegun(kLimit));
  // gRPC runs calls in turn: earlier calls run before these.
  for (int i = 0; i < kLimit; ++i) {
    EXPECT_EQ(Call(OpenChannel(server_->address()), "/nowhere").error_code(),
              grpc::StatusCode::UNIMPLEMENTED);
  }
  EXPECT_EQ(service_.begun(), kLimit);
}

// A unary call runs when its message is complete. These calls never have a message.
TEST_F(RapidReset, CallsThatEndBeforeTheyRunDoNotKeepTheConnectionFull) {
  Start({.per_connection = kLimit, .forgotten_after = absl::ZeroDuration()});
  Raw client(server_->addresses()[0].port);
  uint32_t stream = 1;
  for (int i = 0; i < 3 * kLimit; ++i, stream += 2) {
    client.Send(BeginAndReset(stream, "/grpc.health.v1.Health/Check"));
  }
  ASSERT_TRUE(client.AwaitRead("all read"));
  // The number with its length before it, and its first digit: 8 and 12.
  const std::string exhausted = {1, '8'}, unimplemented = {2, '1'};
  // Some calls may not be done yet, and some may have an answer.
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

}  // namespace
}  // namespace muster
