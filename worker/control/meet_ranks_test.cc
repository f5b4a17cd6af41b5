#include "worker/control/meet_ranks.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "worker/control/fake_control_stream.h"

namespace muster::control {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(60);

v1::WorkerWelcome Welcome(uint32_t world_size, const std::string& host = "127.0.0.1") {
  v1::WorkerWelcome welcome;
  welcome.set_host(host);
  welcome.mutable_spec()->set_world_size(world_size);
  return welcome;
}

TEST(MeetRanks, AllRanksFindEachOtherThroughTheStoreThatRank0Reports) {
  constexpr int kRanks = 3;
  FakeMeeting meeting;
  std::deque<FakeControlStream> streams;
  for (int rank = 0; rank < kRanks; ++rank) streams.emplace_back(Welcome(kRanks), &meeting);
  std::vector<Communicators> met(kRanks);
  std::vector<float> sums(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      auto store = OpenStore(streams[rank], rank, kTimeout);
      ASSERT_TRUE(store.ok()) << store.status();
      const auto listener = ReachRanks(streams[rank], rank, kTimeout, **store);
      ASSERT_TRUE(listener.ok()) << listener.status();
      auto connected =
          ConnectRanks(streams[rank].welcome(), rank, kTimeout, nullptr, *std::move(store));
      ASSERT_TRUE(connected.ok()) << connected.status();
      EXPECT_EQ(connected->control->rank(), rank);
      EXPECT_EQ(connected->gradients->world_size(), kRanks);
      const at::Tensor sum = at::full({1}, rank + 1.0f);
      const absl::Status done = connected->gradients->AllReduceSum(sum, {.what = "sum"})->Wait();
      EXPECT_TRUE(done.ok()) << done;
      sums[rank] = *sum.const_data_ptr<float>();
      met[rank] = *std::move(connected);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums, std::vector<float>(kRanks, 6));
  ASSERT_EQ(streams[0].reports().size(), 1u);
  EXPECT_EQ(streams[0].reports()[0].rendezvous().host(), "127.0.0.1");
  EXPECT_EQ(streams[0].reports()[0].rendezvous().port(), met[0].store->port());
  EXPECT_TRUE(streams[1].reports().empty());
}

TEST(MeetRanks, ARankThatIsNotToldWhereToMeetSaysSo) {
  FakeMeeting meeting;
  FakeControlStream stream(Welcome(2), &meeting);
  const auto store = OpenStore(stream, 1, absl::Milliseconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(store.status())) << store.status();
}

TEST(MeetRanks, HostingAtAnInvalidAddressNamesTheAddress) {
  FakeMeeting meeting;
  FakeControlStream stream(Welcome(1, "no address"), &meeting);
  const auto store = OpenStore(stream, 0, kTimeout);
  EXPECT_TRUE(absl::IsInvalidArgument(store.status())) << store.status();
  EXPECT_THAT(std::string(store.status().message()), HasSubstr("'no address'"));
  EXPECT_TRUE(stream.reports().empty());
}

TEST(MeetRanks, ARankAtAnAddressThatNobodyElseReachesIsNamedWithIt) {
  FakeMeeting meeting;
  // Both ranks listen on addresses of this machine, but Gloo cannot connect them.
  FakeControlStream v4(Welcome(2), &meeting);
  FakeControlStream v6(Welcome(2, "::1"), &meeting);
  absl::Status ends[2];
  std::thread other([&] {
    auto store = OpenStore(v6, 1, kTimeout);
    ASSERT_TRUE(store.ok()) << store.status();
    ends[1] = ReachRanks(v6, 1, kTimeout, **store).status();
  });
  auto store = OpenStore(v4, 0, kTimeout);
  ASSERT_TRUE(store.ok()) << store.status();
  ends[0] = ReachRanks(v4, 0, kTimeout, **store).status();
  other.join();
  for (const absl::Status& end : ends) {
    if (absl::IsUnavailable(end)) continue;  // there is no IPv6 here
    EXPECT_TRUE(absl::IsFailedPrecondition(end)) << end;
    EXPECT_THAT(std::string(end.message()), HasSubstr("--host"));
  }
}

TEST(MeetRanks, OnlyAFailureToHostTheStoreIsTheCause) {
  const absl::Status bad = absl::InvalidArgumentError("no address");
  const absl::Status busy = absl::UnavailableError("cannot be bound");
  EXPECT_EQ(KindOfMeetingFailure(bad, /*hosting=*/true), train::FailureKind::kPermanent);
  EXPECT_EQ(KindOfMeetingFailure(busy, /*hosting=*/true), train::FailureKind::kTransient);
  EXPECT_EQ(KindOfMeetingFailure(bad, /*hosting=*/false), train::FailureKind::kConsequence);
  EXPECT_EQ(KindOfMeetingFailure(busy, /*hosting=*/false), train::FailureKind::kConsequence);
  const absl::Status known = absl::FailedPreconditionError("IPv4 and IPv6");
  EXPECT_EQ(KindOfMeetingFailure(known, /*hosting=*/true), train::FailureKind::kPermanent);
  EXPECT_EQ(KindOfMeetingFailure(known, /*hosting=*/false), train::FailureKind::kPermanent);
}

}  // namespace
}  // namespace muster::control
