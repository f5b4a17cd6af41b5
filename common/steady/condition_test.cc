#include "common/steady/condition.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace muster {
namespace {

class SteadyConditionTest : public ::testing::Test {
 protected:
  absl::Mutex mutex_;
  SteadyCondition condition_;
  bool done_ = false;
};

TEST_F(SteadyConditionTest, WhatHoldsIsNotWaitedFor) {
  absl::MutexLock lock(&mutex_);
  EXPECT_TRUE(condition_.Await(mutex_, absl::ZeroDuration(), [] { return true; }));
  EXPECT_TRUE(condition_.Await(mutex_, -absl::InfiniteDuration(), [] { return true; }));
}

TEST_F(SteadyConditionTest, AWaitThatIsOverSaysThatItDoesNotHold) {
  absl::MutexLock lock(&mutex_);
  EXPECT_FALSE(condition_.Await(mutex_, absl::Milliseconds(1), [&] { return done_; }));
  EXPECT_FALSE(condition_.Await(mutex_, -absl::Seconds(1), [&] { return done_; }));
  mutex_.AssertHeld();
}

TEST_F(SteadyConditionTest, AChangeEndsTheWait) {
  for (const absl::Duration timeout :
       {absl::Hours(1), absl::Hours(24 * 365 * 1000), absl::InfiniteDuration()}) {
    done_ = false;
    std::thread other([&] {
      absl::MutexLock lock(&mutex_);
      done_ = true;
      condition_.Changed();
    });
    {
      absl::MutexLock lock(&mutex_);
      EXPECT_TRUE(condition_.Await(mutex_, timeout, [&] { return done_; }));
    }
    other.join();
  }
}

TEST_F(SteadyConditionTest, EveryWaiterIsWoken) {
  constexpr int kWaiters = 4;
  int woken = 0;
  std::vector<std::thread> waiters;
  for (int i = 0; i < kWaiters; ++i) {
    waiters.emplace_back([&] {
      absl::MutexLock lock(&mutex_);
      if (condition_.Await(mutex_, absl::Hours(1), [&] { return done_; })) ++woken;
    });
  }
  {
    absl::MutexLock lock(&mutex_);
    done_ = true;
  }
  condition_.Changed();
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(woken, kWaiters);
}

}  // namespace
}  // namespace muster
