#include "common/rpc/call_counts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace muster {
namespace {

using Verdict = CallCounts::Verdict;

const absl::Time kStart = absl::UnixEpoch();
constexpr CallLimits kLimits = {.per_connection = 10, .own = 2, .shared = 12};

// So many calls begin. The result is how many of them were admitted.
int Begin(CallCounts* counts, CallCounts::Connection connection, int calls,
          absl::Time now = kStart) {
  int admitted = 0;
  for (int i = 0; i < calls; ++i) {
    if (counts->Begins(connection, now) == Verdict::kAdmitted) ++admitted;
  }
  return admitted;
}

TEST(CallCounts, ACallCountsUntilItIsDone) {
  CallCounts counts(kLimits);
  EXPECT_EQ(Begin(&counts, 1, 10), 10);
  EXPECT_EQ(counts.Begins(1, kStart), Verdict::kConnectionFull);
  counts.Runs(1);
  EXPECT_EQ(counts.Begins(1, kStart), Verdict::kConnectionFull);
  counts.Ends(1);
  EXPECT_EQ(counts.Begins(1, kStart), Verdict::kAdmitted);
  EXPECT_EQ(counts.Begins(1, kStart), Verdict::kConnectionFull);
}

TEST(CallCounts, AnyNumberOfCallsOneAfterTheOtherIsAdmitted) {
  CallCounts counts(kLimits);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(counts.Begins(1, kStart), Verdict::kAdmitted);
    counts.Runs(1);
    counts.Ends(1);
  }
  EXPECT_EQ(counts.connections(), 0u);
}

TEST(CallCounts, AFloodLeavesEachOtherConnectionItsOwnCalls) {
  CallCounts counts(kLimits);
  EXPECT_EQ(Begin(&counts, 1, 100), 10);  // 8 of them shared
  EXPECT_EQ(Begin(&counts, 2, 100), 6);   // the 4 others that are shared
  EXPECT_EQ(counts.Begins(2, kStart), Verdict::kAllFull);
  for (CallCounts::Connection other = 3; other < 50; ++other) {
    EXPECT_EQ(Begin(&counts, other, 100), 2) << other;
  }
  counts.Runs(1);
  counts.Ends(1);
  EXPECT_EQ(Begin(&counts, 3, 100), 1);
}

TEST(CallCounts, ACallThatDoesNotRunIsForgotten) {
  CallCounts counts(kLimits);
  EXPECT_EQ(Begin(&counts, 1, 10), 10);
  counts.Runs(1);
  EXPECT_EQ(counts.Begins(1, kStart + kLimits.forgotten_after), Verdict::kConnectionFull);
  // The one that runs, and what began within the last such time, still count.
  EXPECT_EQ(Begin(&counts, 1, 100, kStart + 2 * kLimits.forgotten_after), 9);
  counts.Ends(1);
  // Also where its connection has no other call, so that nothing is left of connections that end.
  EXPECT_EQ(Begin(&counts, 2, 1, kStart + 3 * kLimits.forgotten_after), 1);
  EXPECT_EQ(counts.connections(), 2u);
  EXPECT_EQ(Begin(&counts, 2, 1, kStart + 4 * kLimits.forgotten_after), 1);
  EXPECT_EQ(counts.connections(), 1u);
}

TEST(CallCounts, OfCallsThatHaveBegunTheOldestRunFirst) {
  CallCounts counts(kLimits);
  EXPECT_EQ(Begin(&counts, 1, 4), 4);
  EXPECT_EQ(Begin(&counts, 1, 4, kStart + kLimits.forgotten_after), 4);
  for (int i = 0; i < 4; ++i) counts.Runs(1);
  // None is forgotten: those that do not run yet began in the last period.
  EXPECT_EQ(Begin(&counts, 1, 100, kStart + 2 * kLimits.forgotten_after), 2);
}

TEST(CallCounts, ACallThatRunsLateCountsAgain) {
  CallCounts counts(kLimits);
  EXPECT_EQ(Begin(&counts, 1, 10), 10);
  const absl::Time later = kStart + 2 * kLimits.forgotten_after;
  EXPECT_EQ(Begin(&counts, 2, 1, kStart + kLimits.forgotten_after), 1);
  EXPECT_EQ(Begin(&counts, 2, 1, later), 1);
  for (int i = 0; i < 10; ++i) counts.Runs(1);
  EXPECT_EQ(counts.Begins(1, later), Verdict::kConnectionFull);
  for (int i = 0; i < 10; ++i) counts.Ends(1);
  EXPECT_EQ(Begin(&counts, 1, 100, later), 10);
}

// The counts again, from all calls that are there.
TEST(CallCounts, AnyOrderOfCallsKeepsTheLimits) {
  std::mt19937 random(11);
  CallCounts counts(kLimits);
  std::map<CallCounts::Connection, std::pair<int, int>> expected;  // begun, running
  const auto beyond_own = [](int all) { return std::max(0, all - kLimits.own); };
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const CallCounts::Connection connection = random() % 5;
    auto& [begun, running] = expected[connection];
    switch (random() % 4) {
      case 0:
      case 1: {
        int shared = 0;
        for (const auto& [_, one] : expected) shared += beyond_own(one.first + one.second);
        const int all = begun + running;
        const bool admitted =
            all < kLimits.per_connection && (all < kLimits.own || shared < kLimits.shared);
        ASSERT_EQ(counts.Begins(connection, kStart) == Verdict::kAdmitted, admitted) << i;
        if (admitted) ++begun;
        if (!admitted) ++refused;
        break;
      }
      case 2:
        if (begun == 0) break;
        counts.Runs(connection);
        --begun;
        ++running;
        break;
      case 3:
        if (running == 0) break;
        counts.Ends(connection);
        --running;
        break;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace muster
