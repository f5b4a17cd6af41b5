#include "common/rpc/sockets.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <string>

#include "common/process/fd.h"

namespace muster {
namespace {

std::string NameOf(int family, const std::string& text) {
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  void* bytes = family == AF_INET
                    ? static_cast<void*>(&reinterpret_cast<sockaddr_in&>(address).sin_addr)
                    : &reinterpret_cast<sockaddr_in6&>(address).sin6_addr;
  EXPECT_EQ(inet_pton(family, text.c_str(), bytes), 1) << text;
  return NetworkPeer(address);
}

TEST(NetworkPeer, AnIpv4PeerIsItsAddress) {
  EXPECT_EQ(NameOf(AF_INET, "10.0.0.7"), "10.0.0.7");
  EXPECT_EQ(NameOf(AF_INET6, "::ffff:10.0.0.7"), "10.0.0.7");
}

// A host can have any number of addresses of its network.
TEST(NetworkPeer, AnIpv6PeerIsItsNetwork) {
  EXPECT_EQ(NameOf(AF_INET6, "2001:db8:1:2::7"), "2001:db8:1:2::/64");
  EXPECT_EQ(NameOf(AF_INET6, "2001:db8:1:2:ffff::8"), "2001:db8:1:2::/64");
  EXPECT_NE(NameOf(AF_INET6, "2001:db8:1:3::7"), "2001:db8:1:2::/64");
}

TEST(PeerOf, APeerOverAUnixSocketIsItsUser) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const process::Fd one(pair[0]);
  const process::Fd other(pair[1]);
  const SocketPeer peer = PeerOf(one.get());
  EXPECT_TRUE(peer.local);
  EXPECT_EQ(peer.uid, geteuid());
  EXPECT_EQ(peer.name, "uid " + std::to_string(geteuid()));
}

}  // namespace
}  // namespace muster
