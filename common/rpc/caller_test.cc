#include "common/rpc/caller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/files/temp_dir.h"
#include "common/rpc/caller_processor.h"
#include "common/rpc/test_server.h"

namespace muster {
namespace {

using ::testing::SizeIs;

constexpr char kGet[] = "/muster.v1.JobService/GetJob";

std::shared_ptr<grpc::ServerCredentials> ForUser(uid_t uid, Authorizer authorize) {
  auto credentials = grpc::experimental::LocalServerCredentials(UDS);
  credentials->SetAuthMetadataProcessor(CallerProcessor::ForUser(uid, std::move(authorize)));
  return credentials;
}

TEST(Caller, IsWrittenForPeople) {
  EXPECT_EQ(ToString({.kind = Caller::Kind::kUser, .uid = 1000}), "uid 1000");
  EXPECT_EQ(ToString({.kind = Caller::Kind::kCertificate, .name = "operator/alice"}),
            "operator/alice");
  EXPECT_EQ(ToString({.kind = Caller::Kind::kCertificate, .name = "a\x1b[1m"}), "a\\x1b[1m");
  EXPECT_EQ(ToString({.peer = "10.0.0.7"}), "an insecure connection from 10.0.0.7");
  EXPECT_EQ(ToString(Caller{}), "an insecure connection");
}

TEST(Caller, APeersAddressHasNoPort) {
  EXPECT_EQ(PeerAddress("ipv4:10.0.0.7:4242"), "10.0.0.7");
  EXPECT_EQ(PeerAddress("ipv6:%5Bfd00::7%5D:4242"), "fd00::7");
  EXPECT_EQ(PeerAddress("ipv6:[::1]:4242"), "::1");
  EXPECT_EQ(PeerAddress("unix:"), "");
  EXPECT_EQ(PeerAddress("unix:/a:b"), "");
  EXPECT_EQ(PeerAddress(""), "");
}

TEST(Caller, OverAUnixSocketIsTheUserOfTheListenersCredentials) {
  const files::TempDir folder = files::TempDir::Short();
  const auto server = TestServer::AtPath(
      folder.Path("s"),
      ForUser(4711, [](const Caller&, const std::string&) { return absl::OkStatus(); }));
  const auto channel = NewChannel(server->address(), grpc::InsecureChannelCredentials());
  for (int i = 0; i < 2; ++i) {
    const grpc::Status status = Call(channel, kGet);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  const std::vector<SeenCall> seen = server->TakeSeen();
  ASSERT_THAT(seen, SizeIs(2));
  for (const SeenCall& call : seen) {
    EXPECT_EQ(call.method, kGet);
    EXPECT_EQ(ToString(call.caller), "uid 4711");
    EXPECT_EQ(call.caller.peer, "");
  }
}

TEST(Caller, OfAListenerThatAsksNobodyIsInsecure) {
  const auto server = TestServer::AtPort(grpc::InsecureServerCredentials());
  const auto channel = NewChannel(server->address(), grpc::InsecureChannelCredentials());
  EXPECT_TRUE(Call(channel, kGet).ok());
  const std::vector<SeenCall> seen = server->TakeSeen();
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(ToString(seen.front().caller), "an insecure connection from 127.0.0.1");
}

}  // namespace
}  // namespace muster
