#include "worker/comm/gloo/proof.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "worker/comm/gloo/gloo_communicator.h"
#include "worker/comm/gloo/rendezvous.h"

namespace muster::comm {
namespace {

// Connects one rank for each secret, over one store. Returns the result of each rank.
std::vector<absl::Status> Meet(const std::vector<std::string>& secrets) {
  const auto host = HostStore();
  EXPECT_TRUE(host.ok()) << host.status();
  std::vector<absl::Status> ends(secrets.size());
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < secrets.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      const auto store = ConnectStore("127.0.0.1", (*host)->port(), std::chrono::minutes(2));
      ASSERT_TRUE(store.ok()) << store.status();
      const GlooOptions options{.rank = static_cast<int>(rank),
                                .world_size = static_cast<int>(secrets.size()),
                                .name = "meeting",
                                .secret = secrets[rank]};
      ends[rank] = CreateGlooCommunicator(options, **store).status();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return ends;
}

TEST(ProveRanks, RanksThatShareASecretMeet) {
  for (const absl::Status& end : Meet({"secret", "secret", "secret"})) EXPECT_TRUE(end.ok()) << end;
  for (const absl::Status& end : Meet({"", ""})) EXPECT_TRUE(end.ok()) << end;
}

TEST(ProveRanks, AStrangerInThePlaceOfARankIsNamed) {
  const std::vector<absl::Status> ends = Meet({"secret", "guess"});
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    EXPECT_EQ(ends[rank].code(), absl::StatusCode::kUnauthenticated) << ends[rank];
    const std::string other = "as rank " + std::to_string(1 - rank);
    EXPECT_NE(ends[rank].message().find(other), std::string::npos) << ends[rank];
  }
}

TEST(Rendezvous, OnlyThoseWhoKnowTheSecretReadWhatTheRanksTellEachOther) {
  const auto host = HostStore("127.0.0.1", "secret");
  ASSERT_TRUE(host.ok()) << host.status();
  ASSERT_TRUE((*host)->Put("key", "value").ok());
  const auto connect = [&](const std::string& secret) {
    return ConnectStore("127.0.0.1", (*host)->port(), std::chrono::minutes(2), secret).value();
  };
  EXPECT_EQ(*connect("secret")->Await("key", std::chrono::minutes(2)), "value");
  for (const std::string other : {"", "guess"}) {
    EXPECT_FALSE(connect(other)->Await("key", std::chrono::milliseconds(10)).ok());
    // A process without the secret cannot change the value either.
    ASSERT_TRUE(connect(other)->Put("key", "forged").ok());
  }
  EXPECT_EQ(*connect("secret")->Await("key", std::chrono::minutes(2)), "value");
}

}  // namespace
}  // namespace muster::comm
