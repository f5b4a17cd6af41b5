#include "common/lease/lease.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

const LeaseTerms kTerms = {
    .lease = absl::Seconds(10), .margin = absl::Milliseconds(250), .autonomy = absl::Hours(1)};
constexpr double kHeld = 9.75;

TEST(Lease, BeforeTheFirstWelcomeNothingIsHeld) {
  Lease lease;
  EXPECT_EQ(lease.End(), absl::InfiniteFuture());
  lease.Broken();
  EXPECT_EQ(lease.End(), absl::InfiniteFuture());
  EXPECT_EQ(lease.Beat(At(1)), 0);
}

TEST(Lease, CountsFromTheSendingOfTheHelloNotFromTheWelcome) {
  Lease lease;
  lease.Welcomed(kTerms, At(5));
  EXPECT_EQ(lease.End(), At(5 + kHeld));
}

TEST(Lease, CountsFromTheSendingOfTheLastHeartbeatThatWasAcknowledged) {
  Lease lease;
  lease.Welcomed(kTerms, At(0));
  EXPECT_EQ(lease.Beat(At(2)), 1);
  EXPECT_EQ(lease.Beat(At(4)), 2);
  EXPECT_EQ(lease.Beat(At(6)), 3);
  EXPECT_EQ(lease.End(), At(kHeld)) << "sent is not received";
  lease.Acked(2);
  EXPECT_EQ(lease.End(), At(4 + kHeld));
  lease.Acked(1);
  EXPECT_EQ(lease.End(), At(4 + kHeld)) << "an older one says nothing new";
}

TEST(Lease, TheBreakOfTheStreamMakesItNotLonger) {
  Lease lease;
  lease.Welcomed(kTerms, At(0));
  lease.Broken();
  EXPECT_EQ(lease.End(), At(kHeld));
}

TEST(Lease, NumbersOfAFormerStreamAcknowledgeNothingOfTheNext) {
  Lease lease;
  lease.Welcomed(kTerms, At(0));
  lease.Beat(At(2));
  lease.Broken();
  lease.Acked(1);
  EXPECT_EQ(lease.End(), At(kHeld)) << "that stream is over: who knows what came";
  lease.Welcomed(kTerms, At(4));
  EXPECT_EQ(lease.Beat(At(6)), 1);
  EXPECT_EQ(lease.End(), At(4 + kHeld));
}

TEST(Lease, ARefusedConnectionCountsAsAnswered) {
  Lease lease;
  lease.Welcomed(kTerms, At(0));
  lease.Broken();
  lease.Refused(At(100));
  EXPECT_EQ(lease.End(), At(100 + kHeld));
  EXPECT_EQ(lease.WithoutRefusals(), At(kHeld));
}

TEST(Lease, RefusedConnectionsCountForAsLongAsTheAutonomy) {
  Lease lease;
  lease.Welcomed(kTerms, At(50));
  lease.Broken();
  lease.Refused(At(3640));
  EXPECT_EQ(lease.End(), At(3649.75));
  lease.Refused(At(3645));
  EXPECT_EQ(lease.End(), At(3650)) << "an hour after the last answer";
}

TEST(Lease, WithoutAutonomyRefusedConnectionsDoNotCount) {
  Lease lease;
  lease.Welcomed({.lease = absl::Seconds(10), .margin = absl::Milliseconds(250)}, At(0));
  lease.Broken();
  lease.Refused(At(5));
  EXPECT_EQ(lease.End(), At(kHeld));
}

TEST(Lease, HalfALeaseWithoutAnAnswerOnAStreamIsSilence) {
  Lease lease;
  EXPECT_EQ(lease.SilentFrom(), absl::InfiniteFuture());
  lease.Welcomed(kTerms, At(0));
  EXPECT_EQ(lease.SilentFrom(), At(5));
  lease.Beat(At(2));
  lease.Acked(1);
  EXPECT_EQ(lease.SilentFrom(), At(7));
  lease.Broken();
  EXPECT_EQ(lease.SilentFrom(), absl::InfiniteFuture());
}

}  // namespace
}  // namespace muster
