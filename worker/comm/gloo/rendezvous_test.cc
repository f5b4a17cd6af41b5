#include "worker/comm/gloo/rendezvous.h"

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "worker/comm/gloo/gloo_communicator.h"

namespace muster::comm {
namespace {

using std::chrono::milliseconds;

TEST(Rendezvous, OthersConnectToTheHostedPort) {
  auto host = HostStore();
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_NE((*host)->port(), 0);
  auto other = ConnectStore("127.0.0.1", (*host)->port(), std::chrono::seconds(10));
  ASSERT_TRUE(other.ok()) << other.status();
}

TEST(Rendezvous, IsReachableOnlyThroughItsAddress) {
  auto host = HostStore("127.0.0.1");
  ASSERT_TRUE(host.ok()) << host.status();
  auto other = ConnectStore("127.0.0.2", (*host)->port(), milliseconds(200));
  EXPECT_EQ(other.status().code(), absl::StatusCode::kUnavailable) << other.status();
}

TEST(Rendezvous, AnAbsentStoreIsUnavailableAndNamed) {
  uint16_t port = 0;
  {
    auto host = HostStore();
    ASSERT_TRUE(host.ok()) << host.status();
    port = (*host)->port();
  }
  auto other = ConnectStore("127.0.0.1", port, milliseconds(200));
  EXPECT_EQ(other.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(other.status().ToString().find(std::to_string(port)), std::string::npos)
      << other.status();
}

TEST(Rendezvous, AForeignAddressCannotBeHosted) {
  EXPECT_EQ(HostStore("192.0.2.1").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(HostStore("a name").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Rendezvous, ARankOutsideOfItsWorldIsRefused) {
  auto host = HostStore();
  ASSERT_TRUE(host.ok()) << host.status();
  for (const auto& [rank, world_size] :
       {std::pair(2, 2), std::pair(-1, 2), std::pair(0, 0), std::pair(-2, -1)}) {
    const auto communicator = CreateGlooCommunicator(
        {.rank = rank, .world_size = world_size, .connect_timeout = milliseconds(300)}, **host);
    EXPECT_EQ(communicator.status().code(), absl::StatusCode::kInvalidArgument)
        << communicator.status();
    EXPECT_EQ(std::string(communicator.status().message()),
              "rank " + std::to_string(rank) + " is not a rank of " + std::to_string(world_size));
  }
}

TEST(Rendezvous, ARankThatNeverComesFailsTheOthers) {
  auto host = HostStore();
  ASSERT_TRUE(host.ok()) << host.status();
  auto communicator = CreateGlooCommunicator(
      {.rank = 0, .world_size = 2, .name = "alone", .connect_timeout = milliseconds(300)}, **host);
  EXPECT_FALSE(communicator.ok());
  EXPECT_NE(communicator.status().ToString().find("communicator 'alone'"), std::string::npos)
      << communicator.status();
}

TEST(Rendezvous, AValueReachesTheRanksThatAwaitIt) {
  const auto hosted = HostStore();
  ASSERT_TRUE(hosted.ok()) << hosted.status();
  const auto connected = ConnectStore("127.0.0.1", (*hosted)->port(), std::chrono::seconds(30));
  ASSERT_TRUE(connected.ok()) << connected.status();
  const std::string value("id\0of ranks", 11);
  std::thread rank1([&] {
    const auto found = (*connected)->Await("nccl/gradients", std::chrono::seconds(30));
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, value);
  });
  EXPECT_TRUE((*hosted)->Put("nccl/gradients", value).ok());
  rank1.join();
  EXPECT_EQ((*connected)->Await("nccl/other", std::chrono::milliseconds(1)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace muster::comm
