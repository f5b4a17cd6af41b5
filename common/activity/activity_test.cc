#include "common/activity/activity.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace muster::activity {
namespace {

TEST(Activity, CountsWhatTheThreadOfTheScopeDoes) {
  Moved();  // counts for nobody
  Activity outer;
  Activity inner;
  {
    const Scope scope(&outer);
    Moved();
    {
      const Scope nested(&inner);
      Moved();
      Moved();
    }
    {
      const Scope nobody(nullptr);
      Moved();
    }
    Moved();
    std::thread([] { Moved(); }).join();
  }
  Moved();
  EXPECT_EQ(outer.count(), 2);
  EXPECT_EQ(inner.count(), 2);
}

TEST(Activity, RanksThatAreThreadsCountEachForItself) {
  std::vector<Activity> ranks(4);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const Scope scope(&ranks[rank]);
      for (size_t i = 0; i <= rank; ++i) Moved();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t rank = 0; rank < ranks.size(); ++rank) EXPECT_EQ(ranks[rank].count(), rank + 1);
}

TEST(ByBlocks, EachBlockMovesAndAllOfItIsDone) {
  Activity activity;
  const Scope scope(&activity);
  size_t done = 0;
  const auto work = [&](size_t offset, size_t bytes) {
    EXPECT_EQ(offset, done);
    done += bytes;
    return true;
  };
  ByBlocks(2 * kBlockBytes + 1, work);
  EXPECT_EQ(done, 2 * kBlockBytes + 1);
  EXPECT_EQ(activity.count(), 3);
  done = 0;
  ByBlocks(0, work);
  EXPECT_EQ(activity.count(), 3);
}

TEST(ByBlocks, WorkThatFailsEndsItAndDoesNotCount) {
  Activity activity;
  const Scope scope(&activity);
  int calls = 0;
  ByBlocks(5 * kBlockBytes, [&](size_t, size_t) { return ++calls < 2; });
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(activity.count(), 1);
}

}  // namespace
}  // namespace muster::activity
