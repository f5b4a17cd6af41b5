// A wait continues beyond its timeout while the coordinator decides which rank hangs.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "ATen/core/Tensor.h"
#include "ATen/ops/ones.h"
#include "gtest/gtest.h"
#include "worker/comm/gloo/gloo_communicator.h"
#include "worker/comm/gloo/rendezvous.h"

namespace muster::comm {
namespace {

// Returns the result of rank 0, which waits for rank 1. Rank 1 takes part when rank 0 has called
// `watched` `times` times. `watched` returns false after `most` calls.
absl::Status WaitFor(int times, int most) {
  auto host = HostStore();
  EXPECT_TRUE(host.ok()) << host.status();
  std::atomic<int> asked{0};
  std::atomic<bool> waited{false};
  const auto rank = [&](int number, const std::function<bool()>& watched) {
    auto store = ConnectStore("127.0.0.1", (*host)->port(), std::chrono::seconds(30));
    EXPECT_TRUE(store.ok()) << store.status();
    return CreateGlooCommunicator({.rank = number,
                                   .world_size = 2,
                                   .name = "test",
                                   .timeout = std::chrono::milliseconds(50),
                                   .watched = watched},
                                  **store);
  };
  std::thread peer([&] {
    const auto ranks = rank(1, [] { return true; });
    EXPECT_TRUE(ranks.ok()) << ranks.status();
    while (asked < times && !waited) std::this_thread::yield();
    if (!waited) (*ranks)->AllReduceSum(at::ones({4}), {"late", 1})->Wait().IgnoreError();
    while (!waited) std::this_thread::yield();
  });
  absl::Status status;
  {
    const auto ranks = rank(0, [&] { return ++asked <= most; });
    EXPECT_TRUE(ranks.ok()) << ranks.status();
    status = (*ranks)->AllReduceSum(at::ones({4}), {"late", 1})->Wait();
    waited = true;
  }
  peer.join();
  return status;
}

TEST(WatchedWait, GoesOnForManyTimeoutsUntilThePeerIsThere) {
  EXPECT_TRUE(WaitFor(3, 1 << 30).ok());
}

TEST(WatchedWait, EndsWithTheTimeoutAfterWhichNobodyWatches) {
  const absl::Status status = WaitFor(1000, 3);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

}  // namespace
}  // namespace muster::comm
