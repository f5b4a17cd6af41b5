#include "worker/memory/counters.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace muster::memory {
namespace {

TEST(MemoryScope, TheInnermostCountsAndTheOuterOneComesBack) {
  EXPECT_EQ(CurrentPurpose(), Purpose::kOther);
  {
    const MemoryScope outer(Purpose::kActivations);
    EXPECT_EQ(CurrentPurpose(), Purpose::kActivations);
    {
      const MemoryScope inner(Purpose::kBuckets);
      EXPECT_EQ(CurrentPurpose(), Purpose::kBuckets);
      const MemoryScope back_to_other(Purpose::kOther);
      EXPECT_EQ(CurrentPurpose(), Purpose::kOther);
    }
    EXPECT_EQ(CurrentPurpose(), Purpose::kActivations);
  }
  EXPECT_EQ(CurrentPurpose(), Purpose::kOther);
}

TEST(MemoryScope, IsAThreadsOwn) {
  const MemoryScope scope(Purpose::kMoments);
  std::thread([] {
    EXPECT_EQ(CurrentPurpose(), Purpose::kOther);
    const MemoryScope own(Purpose::kGradients);
  }).join();
  EXPECT_EQ(CurrentPurpose(), Purpose::kMoments);
}

TEST(Counters, KeepWhatIsInUseAndTheMostThatWas) {
  struct Case {
    const char* what;
    std::vector<int64_t> changes;  // negative: removed
    Use end;
  };
  const Case cases[] = {
      {"nothing", {}, {0, 0}},
      {"one", {100}, {100, 100}},
      {"one that went", {100, -100}, {0, 100}},
      {"a peak in the middle", {100, 50, -100, 30}, {80, 150}},
      {"a peak that is reached twice", {100, -100, 100}, {100, 100}},
      {"no bytes", {0, 7, 0}, {7, 7}},
      {"more than 32 bits",
       {int64_t{5} << 32, -(int64_t{4} << 32)},
       {uint64_t{1} << 32, uint64_t{5} << 32}},
  };
  for (const Case& c : cases) {
    Counters counters;
    for (const int64_t change : c.changes) {
      change >= 0 ? counters.Add(Purpose::kMoments, change)
                  : counters.Remove(Purpose::kMoments, -change);
    }
    EXPECT_EQ(counters.Read().of(Purpose::kMoments), c.end) << c.what;
    EXPECT_EQ(counters.Read().total, c.end) << c.what;
    EXPECT_EQ(counters.Read().of(Purpose::kOther), Use()) << c.what;
  }
}

TEST(Counters, ThePeakOfAllIsThatOfOneTime) {
  Counters counters;
  counters.Add(Purpose::kActivations, 100);
  counters.Remove(Purpose::kActivations, 100);
  counters.Add(Purpose::kBuckets, 60);
  const Usage usage = counters.Read();
  EXPECT_EQ(usage.of(Purpose::kActivations), (Use{0, 100}));
  EXPECT_EQ(usage.of(Purpose::kBuckets), (Use{60, 60}));
  EXPECT_EQ(usage.total, (Use{60, 100}));
}

TEST(Counters, AResetPeakIsWhatIsInUse) {
  Counters counters;
  counters.Add(Purpose::kActivations, 100);
  counters.Add(Purpose::kMoments, 10);
  counters.Remove(Purpose::kActivations, 70);
  counters.ResetPeaks();
  EXPECT_EQ(counters.Read().of(Purpose::kActivations), (Use{30, 30}));
  EXPECT_EQ(counters.Read().of(Purpose::kMoments), (Use{10, 10}));
  EXPECT_EQ(counters.Read().total, (Use{40, 40}));
  counters.Add(Purpose::kActivations, 5);
  EXPECT_EQ(counters.Read().total, (Use{45, 45}));
}

TEST(Counters, ThreadsLoseNothing) {
  constexpr int kThreads = 4;
  constexpr uint64_t kRounds = 20000;
  Counters counters;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&counters] {
      for (uint64_t round = 0; round < kRounds; ++round) {
        counters.Add(Purpose::kBuckets, 3);
        counters.Remove(Purpose::kBuckets, 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Use use = counters.Read().of(Purpose::kBuckets);
  EXPECT_EQ(use.bytes, kThreads * kRounds);
  // The last addition saw all lasting bytes, and at most the bytes that other threads had not yet
  // removed.
  EXPECT_GE(use.peak_bytes, kThreads * kRounds);
  EXPECT_LE(use.peak_bytes, kThreads * kRounds + 2 * kThreads);
  EXPECT_EQ(counters.Read().total.bytes, use.bytes);
}

}  // namespace
}  // namespace muster::memory
