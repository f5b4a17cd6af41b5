#include "common/rpc/call_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>

namespace muster {
namespace {

using Verdict = CallCounts::Verdict;
using Connection = CallCounts::Connection;

const absl::Time kStart = absl::UnixEpoch();
constexpr CallLimits kLimits = {.per_connection = 10, .own = 2, .shared = 12};

Connection Tcp(int64_t number) { return {Transport::kTcp, number}; }

// Begins so many calls. Returns how many were admitted.
int Begin(CallCounts* counts, Connection connection, int calls, absl::Time now = kStart) {
  int admitted = 0;
  for (int i = 0; i < calls; ++i) {
    if (counts->Begins(connection, now) == Verdict::kAdmitted) ++admitted;
  }
  return admitted;
}

TEST(CallCounts, ACallCountsUntilItIsDone) {
  CallCounts counts(kLimits);
  EXPECT_EQ(Begin(&counts, Tcp(1), 10), 10);
  EXPECT_EQ(counts.Begins(Tcp(1), kStart), Verdict::kConnectionFull);
  counts.Runs(Tcp(1));
  EXPECT_EQ(counts.Begins(Tcp(1), kStart), Verdict::kConnectionFull);
  counts.Ends(Tcp(1));
  EXPECT_EQ(counts.Begins(Tcp(1), kStart), Verdict::kAdmitted);
  EXPECT_EQ(counts.Begins(Tcp(1), kStart), Verdict::kConnectionFull);
}

TEST(CallCounts, AnyNumberOfCallsOneAfterTheOtherIsAdmitted) {
  CallCounts counts(kLimits);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(counts.Begins(Tcp(1), kStart), Verdict::kAdmitted);
    counts.Runs(Tcp(1));
    counts.Ends(Tcp(1));
  }
  EXPECT_EQ(counts.connections(), 0u);
}

TEST(CallCounts, AFloodLeavesEachOtherConnectionItsOwnCalls) {
  CallCounts counts(kLimits);
  EXPECT_EQ(Begin(&counts, Tcp(1), 100), 10);  // 8 of them shared
  EXPECT_EQ(Begin(&counts, Tcp(2), 100), 6);   // the other 4 shared ones
  EXPECT_EQ(counts.Begins(Tcp(2), kStart), Verdict::kAllFull);
  for (int64_t other = 3; other < 50; ++other) {
    EXPECT_EQ(Begin(&counts, Tcp(other), 100), 2) << other;
  }
  counts.Runs(Tcp(1));
  counts.Ends(Tcp(1));
  EXPECT_EQ(Begin(&counts, Tcp(3), 100), 1);
}

TEST(CallCounts, AFloodOverTcpLeavesUnixSocketsTheirRoom) {
  CallCounts counts(kLimits);
  EXPECT_EQ(Begin(&counts, Tcp(1), 100), 10);
  EXPECT_EQ(Begin(&counts, Tcp(2), 100), 6);
  EXPECT_EQ(Begin(&counts, {Transport::kLocal, 1}, 100), 10);
  EXPECT_EQ(Begin(&counts, {Transport::kLocal, 2}, 100), 6);
}

TEST(CallCounts, AfterAPauseOfTwoPeriodsAllCallsThatDoNotRunAreForgotten) {
  CallCounts counts(kLimits);
  EXPECT_EQ(Begin(&counts, Tcp(1), 10), 10);
  EXPECT_EQ(Begin(&counts, Tcp(2), 1, kStart + 2 * kLimits.forgotten_after), 1);
  EXPECT_EQ(counts.connections(), 1u);
}

TEST(CallCounts, ACallThatDoesNotRunIsForgotten) {
  CallCounts counts(kLimits);
  EXPECT_EQ(Begin(&counts, Tcp(1), 10), 10);
  counts.Runs(Tcp(1));
  EXPECT_EQ(counts.Begins(Tcp(1), kStart + kLimits.forgotten_after), Verdict::kConnectionFull);
  // The running call, and calls from the last such time, still count.
  EXPECT_EQ(Begin(&counts, Tcp(1), 100, kStart + 2 * kLimits.forgotten_after), 9);
  counts.Ends(Tcp(1));
  // A call is also forgotten if its connection has no other call, so that ended connections leave
  // nothing.
  EXPECT_EQ(Begin(&counts, Tcp(2), 1, kStart + 3 * kLimits.forgotten_after), 1);
  EXPECT_EQ(counts.connections(), 2u);
  EXPECT_EQ(Begin(&counts, Tcp(2), 1, kStart + 4 * kLimits.forgotten_after), 1);
  EXPECT_EQ(counts.connections(), 1u);
}

TEST(CallCounts, OfCallsThatHaveBegunTheOldestRunFirst) {
  CallCounts counts(kLimits);
  EXPECT_EQ(Begin(&counts, Tcp(1), 4), 4);
  EXPECT_EQ(Begin(&counts, Tcp(1), 4, kStart + kLimits.forgotten_after), 4);
  for (int i = 0; i < 4; ++i) counts.Runs(Tcp(1));
  // No call is forgotten: the calls that do not run yet began in the last period.
  EXPECT_EQ(Begin(&counts, Tcp(1), 100, kStart + 2 * kLimits.forgotten_after), 2);
}

TEST(CallCounts, ACallThatRunsLateCountsAgain) {
  CallCounts counts(kLimits);
  EXPECT_EQ(Begin(&counts, Tcp(1), 10), 10);
  const absl::Time later = kStart + 2 * kLimits.forgotten_after;
  EXPECT_EQ(Begin(&counts, Tcp(2), 1, kStart + kLimits.forgotten_after), 1);
  EXPECT_EQ(Begin(&counts, Tcp(2), 1, later), 1);
  for (int i = 0; i < 10; ++i) counts.Runs(Tcp(1));
  EXPECT_EQ(counts.Begins(Tcp(1), later), Verdict::kConnectionFull);
  for (int i = 0; i < 10; ++i) counts.Ends(Tcp(1));
  EXPECT_EQ(Begin(&counts, Tcp(1), 100, later), 10);
}

// The counts are compared with counts of all present calls.
TEST(CallCounts, AnyOrderOfCallsKeepsTheLimits) {
  struct Expected {
    int running = 0;
    std::deque<int> begun;  // the period of each
  };
  std::mt19937 random(11);
  CallCounts counts(kLimits);
  std::map<Connection, Expected> all;
  int period = 0;
  const auto now = [&] { return kStart + period * kLimits.forgotten_after; };
  const auto size = [](const Expected& one) {
    return one.running + static_cast<int>(one.begun.size());
  };
  int refused = 0, forgotten = 0;
  for (int i = 0; i < 50000; ++i) {
    const Connection connection = {random() % 2 == 0 ? Transport::kTcp : Transport::kLocal,
                                   random() % 5};
    Expected& one = all[connection];
    switch (random() % 4) {
      case 0:
      case 1: {
        if (random() % 50 == 0) period += random() % 3;
        int shared = 0;
        for (auto& [other, expected] : all) {
          while (!expected.begun.empty() && expected.begun.front() < period - 1) {
            expected.begun.pop_front();
            ++forgotten;
          }
          if (other.first != connection.first) continue;
          shared += std::max(0, size(expected) - kLimits.own);
        }
        const bool admitted = size(one) < kLimits.per_connection &&
                              (size(one) < kLimits.own || shared < kLimits.shared);
        ASSERT_EQ(counts.Begins(connection, now()) == Verdict::kAdmitted, admitted) << i;
        if (admitted) one.begun.push_back(period);
        if (!admitted) ++refused;
        break;
      }
      case 2:
        if (one.begun.empty()) break;
        counts.Runs(connection);
        one.begun.pop_front();
        ++one.running;
        break;
      case 3:
        if (one.running == 0) break;
        counts.Ends(connection);
        --one.running;
        break;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(forgotten, 100);
}

}  // namespace
}  // namespace muster
