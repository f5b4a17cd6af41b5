#include "client/api/connection.h"

#include <arpa/inet.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/steady/now.h"
#include "common/steady/test_bound.h"

namespace muster::client {
namespace {

const absl::Status kBroken = absl::UnavailableError("no coordinator answers");

std::shared_ptr<grpc::Channel> ChannelTo(int port) {
  return grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
}
std::shared_ptr<grpc::Channel> Nobody() { return ChannelTo(1); }

// Accepts one connection and sends the first bytes of an HTTP/2 server. A gRPC server in this
// process would work on the client's connection, too.
class OneConnection {
 public:
  OneConnection() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      connection_ = connection;
      const char settings[9] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
      EXPECT_EQ(write(connection, settings, sizeof(settings)), 9);
    });
  }
  ~OneConnection() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(connection_);
    close(listener_);
  }
  int port() const { return port_; }

 private:
  const int listener_;
  int port_ = 0;
  int connection_ = -1;
  std::thread thread_;
};

TEST(Retries, TheChannelConnectsMeanwhile) {
  // Keeps gRPC from polling connections for which nobody waits. gRPC reads the setting once, so
  // this test is the first one.
  ASSERT_EQ(setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "0", 1), 0);
  const OneConnection server;
  const auto channel = ChannelTo(server.port());
  channel->GetState(/*try_to_connect=*/true);
  Retries retries(channel, kTestBound, nullptr);
  absl::Status status;
  while (channel->GetState(false) != GRPC_CHANNEL_READY && status.ok()) {
    status = retries.Await(kBroken);
  }
  EXPECT_TRUE(status.ok()) << "the channel has not connected";
}

TEST(Retries, TriesAgainWithinItsTimeAndWithoutACancellation) {
  Retries retries(Nobody(), absl::Hours(1), nullptr);
  EXPECT_TRUE(retries.Await(kBroken).ok());
  EXPECT_FALSE(retries.cancellation()->cancelled());
}

TEST(Retries, EndsWithTheErrorOnceItsTimeIsOver) {
  Retries retries(Nobody(), absl::ZeroDuration(), nullptr);
  EXPECT_EQ(retries.Await(kBroken), kBroken);
}

TEST(Retries, EndsWithTheDeadlineOfTheCall) {
  Retries retries(Nobody(), absl::Hours(1), nullptr);
  const absl::Status status = retries.Await(kBroken, SteadyNow());
  EXPECT_EQ(status, absl::DeadlineExceededError("no coordinator answers"));
}

TEST(Retries, EndsWhenTheCallerCancels) {
  Cancellation cancellation;
  cancellation.Cancel();
  Retries retries(Nobody(), absl::Hours(1), &cancellation);
  EXPECT_EQ(retries.Await(kBroken).code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace muster::client
