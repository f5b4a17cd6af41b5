#include "coordinator/service/session.h"

#include <gtest/gtest.h>

#include <optional>

#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"

namespace muster::service {
namespace {

class Stream : public PeerStream {
 public:
  explicit Stream(PeerStreams* all, cluster::PeerStreamId id) : all_(all), id_(id) {}
  void End(const absl::Status& why) override {
    all_->Remove(id_);
    ended = why;
  }
  bool Heard() const override { return heard; }
  absl::Status MayGoOn() const override { return may_go_on; }

  bool heard = false;
  absl::Status may_go_on;
  std::optional<absl::Status> ended;

 private:
  PeerStreams* const all_;
  const cluster::PeerStreamId id_;
};

TEST(PeerStreams, AStreamOverWhichNothingComesIsEndedByName) {
  const absl::Time start = absl::FromUnixSeconds(1000);
  const absl::Duration most = absl::Seconds(kLimits.first_message_seconds);
  PeerStreams streams;
  Stream silent(&streams, 1), speaks(&streams, 2), later(&streams, 3);
  ASSERT_TRUE(streams.Add(1, &silent, start).ok());
  ASSERT_TRUE(streams.Add(2, &speaks, start).ok());
  ASSERT_TRUE(streams.Add(3, &later, start + absl::Seconds(1)).ok());
  speaks.heard = true;
  streams.EndSilent(start + most - absl::Milliseconds(1));
  EXPECT_FALSE(silent.ended.has_value());
  streams.EndSilent(start + most);
  ASSERT_TRUE(silent.ended.has_value());
  EXPECT_EQ(silent.ended->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(RefusalReason(*silent.ended), "HELLO_MISSING");
  EXPECT_FALSE(later.ended.has_value());
  streams.EndSilent(start + absl::Hours(1));
  EXPECT_TRUE(later.ended.has_value());
  EXPECT_FALSE(speaks.ended.has_value());
  EXPECT_EQ(streams.Find(2), &speaks);
}

TEST(PeerStreams, AStreamWhoseCallerIsNotAllowedAnyMoreIsEnded) {
  PeerStreams streams;
  Stream revoked(&streams, 1), other(&streams, 2);
  ASSERT_TRUE(streams.Add(1, &revoked, absl::UnixEpoch()).ok());
  ASSERT_TRUE(streams.Add(2, &other, absl::UnixEpoch()).ok());
  streams.EndRefused();
  EXPECT_FALSE(revoked.ended.has_value());
  revoked.may_go_on = absl::PermissionDeniedError("revoked");
  streams.EndRefused();
  EXPECT_EQ(revoked.ended, absl::PermissionDeniedError("revoked"));
  EXPECT_EQ(streams.Find(1), nullptr);
  EXPECT_FALSE(other.ended.has_value());
}

}  // namespace
}  // namespace muster::service
