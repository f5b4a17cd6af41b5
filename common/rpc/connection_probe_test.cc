#include "common/rpc/connection_probe.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/files/temp_dir.h"
#include "common/rpc/address.h"
#include "common/rpc/sockets.h"
#include "common/steady/now.h"
#include "common/steady/test_bound.h"

namespace muster {
namespace {

// A port of this host that the test owns.
class Port {
 public:
  explicit Port(bool listening) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    if (listening) EXPECT_EQ(listen(fd_, 1), 0);
    socklen_t size = sizeof(address);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~Port() { close(fd_); }
  const std::string& address() const { return address_; }

 private:
  const int fd_;
  std::string address_;
};

TEST(IsRefused, AHostOnWhichNobodyListensRefuses) {
  const Port port(/*listening=*/false);
  EXPECT_TRUE(IsRefused(port.address(), kTestBound));
}

TEST(IsRefused, AProgramThatAcceptsAndSaysNothingDoesNotRefuse) {
  const Port port(/*listening=*/true);
  EXPECT_FALSE(IsRefused(port.address(), kTestBound));
}

TEST(IsRefused, AUnixSocketThatIsGoneOrOnWhichNobodyListensRefuses) {
  const files::TempDir folder = files::TempDir::Short();
  const std::string address = absl::StrCat("unix:", folder.Path("socket"));
  EXPECT_TRUE(IsRefused(address, kTestBound));
  {
    const auto socket = Listen(*ParseAddress(address));
    ASSERT_TRUE(socket.ok()) << socket.status();
    EXPECT_FALSE(IsRefused(address, kTestBound));
  }
  EXPECT_TRUE(IsRefused(address, kTestBound));
}

TEST(IsRefused, WhatCannotBeReachedDoesNotRefuse) {
  EXPECT_FALSE(IsRefused("no address", kTestBound));
  EXPECT_FALSE(IsRefused("host.invalid:1", kTestBound));
  // An address of class E: no route, or an answer that never comes.
  EXPECT_FALSE(IsRefused("240.0.0.1:1", absl::Milliseconds(1)));
}

TEST(ConnectionProbe, SaysThatItWasRefusedAndWhenItHadAsked) {
  const Port port(/*listening=*/false);
  absl::Notification told;
  absl::Time begun = absl::InfinitePast();
  const absl::Time before = SteadyNow();
  ConnectionProbe probe(port.address(), [&](absl::Time when) {
    if (told.HasBeenNotified()) return;
    begun = when;
    told.Notify();
  });
  probe.Begin(absl::Milliseconds(1));
  ASSERT_TRUE(told.WaitForNotificationWithTimeout(kTestBound));
  EXPECT_GE(begun, before);
  EXPECT_LE(begun, SteadyNow());
}

TEST(ConnectionProbe, EndsAlsoWhileItProbes) {
  const Port port(/*listening=*/true);
  ConnectionProbe probe(port.address(), [](absl::Time) { ADD_FAILURE() << "somebody listens"; });
  probe.Begin(absl::Milliseconds(1));
  probe.Stop();
}

}  // namespace
}  // namespace muster
