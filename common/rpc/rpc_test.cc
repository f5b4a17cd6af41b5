#include "common/rpc/rpc.h"

#include <gtest/gtest.h>

#include "proto/muster/v1/job_service.grpc.pb.h"

namespace muster {
namespace {

// Answers every call with UNIMPLEMENTED.
v1::JobService::CallbackService service;

TEST(Server, TakesAFreePortAndIsReachedThere) {
  auto server = Server::Start({}, {&service});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_GT((*server)->port(), 0);
  auto channel = OpenChannel((*server)->address());
  EXPECT_TRUE(
      channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(20)));
}

TEST(KeepAlive, NoticesADeadPeerWithinTheLease) {
  for (const double seconds : {2.0, 3.0, 10.0, 60.0}) {
    const KeepAlive keepalive = KeepAlive::Within(absl::Seconds(seconds));
    EXPECT_LT(keepalive.time + keepalive.timeout, absl::Seconds(0.8 * seconds)) << seconds;
    EXPECT_GE(keepalive.timeout, absl::Seconds(1));
  }
  EXPECT_EQ(KeepAlive::Within(absl::Hours(1)).time, KeepAlive().time);
}

TEST(Server, BeyondLoopbackIsRefusedUnlessAllowed) {
  EXPECT_EQ(Server::Start({.listen = "0.0.0.0:0"}, {&service}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Server::Start({.listen = "0.0.0.0:0", .allow_insecure = true}, {&service}).ok());
}

TEST(Server, ATakenPortAndAnAddressWithoutPortAreErrors) {
  auto first = Server::Start({}, {&service});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(Server::Start({.listen = (*first)->address()}, {&service}).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(Server::Start({.listen = "localhost"}, {&service}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster
