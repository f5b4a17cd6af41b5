#include "worker/control/report_spool.h"

#include <gtest/gtest.h>

namespace muster::control {
namespace {

using Kind = SpoolWork::Kind;

constexpr absl::Duration kTimeout = absl::Seconds(10);
constexpr size_t kLimit = 1 << 20;
const absl::Time kStart = absl::FromUnixSeconds(1000);

v1::WorkerReport Step(uint64_t step) {
  v1::WorkerReport report;
  report.mutable_step()->set_step(step);
  return report;
}

// An outbox with two reports that the coordinator, away since kStart, has not acknowledged.
SpooledOutbox Away() {
  SpooledOutbox outbox;
  for (uint64_t step : {1, 2}) outbox.Add(Step(step));
  outbox.BeAway(kStart);
  return outbox;
}

TEST(SpooledOutbox, WritesOnceTheCoordinatorHasBeenAwayForTheTimeout) {
  SpooledOutbox outbox = Away();
  SpoolWork work = outbox.NextWork(kStart, false, kTimeout, 0, kLimit);
  EXPECT_EQ(work.kind, Kind::kNothing);
  EXPECT_EQ(work.again, kStart + kTimeout);
  work = outbox.NextWork(work.again, false, kTimeout, 0, kLimit);
  EXPECT_EQ(work.kind, Kind::kWrite);
  EXPECT_EQ(work.reports.size(), 2);
  EXPECT_FALSE(work.sync);
  outbox.Written(work, true, kStart + kTimeout);
  EXPECT_TRUE(outbox.IsSettled(2));
  EXPECT_FALSE(outbox.IsDurable()) << "it is not synced";
  work = outbox.NextWork(kStart + kTimeout, false, kTimeout, 2, kLimit);
  EXPECT_EQ(work.kind, Kind::kNothing) << "there is a pause between two writes";
  work = outbox.NextWork(work.again, false, kTimeout, 2, kLimit);
  EXPECT_EQ(work.kind, Kind::kWrite);
  EXPECT_TRUE(work.reports.empty());
}

TEST(SpooledOutbox, WhileAttachedItWritesOnlyForACallerThatWaits) {
  SpooledOutbox outbox = Away();
  SpoolWork work = outbox.NextWork(kStart + kTimeout, true, kTimeout, 0, kLimit);
  EXPECT_EQ(work.kind, Kind::kNothing);
  EXPECT_EQ(work.again, absl::InfiniteFuture());
  outbox.Settle();
  work = outbox.NextWork(kStart, true, kTimeout, 0, kLimit);
  EXPECT_EQ(work.kind, Kind::kWrite);
  outbox.Written(work, true, kStart);
  EXPECT_TRUE(outbox.IsSettled(2));
  outbox.Acknowledge(2);
  EXPECT_EQ(outbox.NextWork(kStart, true, kTimeout, 2, kLimit).kind, Kind::kRemove);
  EXPECT_EQ(outbox.NextWork(kStart, true, kTimeout, 0, kLimit).kind, Kind::kNothing);
}

TEST(SpooledOutbox, AFailedWriteIsTriedAgainLaterAndKeepsNobodyWaiting) {
  SpooledOutbox outbox = Away();
  outbox.Settle();
  SpoolWork work = outbox.NextWork(kStart, false, kTimeout, 0, kLimit);
  EXPECT_TRUE(work.was_well);
  outbox.Written(work, false, kStart);
  EXPECT_TRUE(outbox.CannotSettle(2));
  outbox.Add(Step(3));
  outbox.Settle();
  EXPECT_FALSE(outbox.CannotSettle(3));
  work = outbox.NextWork(kStart, false, kTimeout, 0, kLimit);
  EXPECT_EQ(work.kind, Kind::kNothing);
  EXPECT_TRUE(outbox.CannotSettle(3));
  work = outbox.NextWork(work.again, false, kTimeout, 0, kLimit);
  EXPECT_EQ(work.kind, Kind::kWrite);
  EXPECT_FALSE(work.was_well);
  outbox.Written(work, true, work.again);
  EXPECT_TRUE(outbox.IsSettled(3));
}

TEST(SpooledOutbox, NearTheEndEveryWriteIsSynced) {
  SpooledOutbox outbox = Away();
  outbox.Flush();
  const SpoolWork work = outbox.NextWork(kStart, false, kTimeout, 0, kLimit);
  EXPECT_TRUE(work.sync);
  outbox.Written(work, true, kStart);
  EXPECT_TRUE(outbox.IsDurable());
}

TEST(SpooledOutbox, BeyondTheLimitThinnedReportsReplaceTheSpool) {
  SpooledOutbox outbox = Away();
  const SpoolWork work = outbox.NextWork(kStart + kTimeout, false, kTimeout, 1, 1);
  EXPECT_EQ(work.kind, Kind::kWrite);
  EXPECT_TRUE(work.replace);
  EXPECT_EQ(work.reports.size(), 2) << "also the report that the spool has";
}

}  // namespace
}  // namespace muster::control
