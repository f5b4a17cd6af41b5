#include <gtest/gtest.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/peer_stream.h"
#include "proto/muster/v1/agent_service.pb.h"

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

TEST(PeerStreams, WhatWaitsOfAllStreamsIsLimited) {
  PeerStreams streams(/*most_bytes=*/100);
  EXPECT_TRUE(streams.Reserve(60));
  EXPECT_FALSE(streams.Reserve(41));
  EXPECT_TRUE(streams.Reserve(40)) << "what was refused does not count";
  EXPECT_FALSE(streams.Reserve(1));
  streams.Release(60);
  EXPECT_TRUE(streams.Reserve(60));
}

TEST(PeerMessage, ItsSizeIsCheckedBeforeItIsParsed) {
  v1::AgentMessage message;
  message.mutable_hello()->set_node("n1");
  const grpc::ByteBuffer bytes = ToBytes(message);
  v1::AgentMessage parsed;
  ASSERT_TRUE(Parse(bytes, bytes.Length(), &parsed).ok());
  EXPECT_EQ(parsed.hello().node(), "n1");
  v1::AgentMessage untouched;
  const absl::Status refused = Parse(bytes, bytes.Length() - 1, &untouched);
  EXPECT_EQ(RefusalReason(refused), "MESSAGE_TOO_LARGE");
  EXPECT_EQ(AboutOf(refused)["limit"], absl::StrCat(bytes.Length() - 1));
  EXPECT_FALSE(untouched.has_hello());
}

TEST(PeerMessage, WhatIsNoMessageIsRefusedByName) {
  const grpc::Slice no_message("\xff\xff\xff");
  v1::AgentMessage parsed;
  const absl::Status refused = Parse(grpc::ByteBuffer(&no_message, 1), 1000, &parsed);
  EXPECT_EQ(RefusalReason(refused), "MESSAGE_UNREADABLE");
  EXPECT_EQ(AboutOf(refused)["type"], "muster.v1.AgentMessage");
  EXPECT_FALSE(Parse(grpc::ByteBuffer(), 1000, &parsed).ok());
  EXPECT_TRUE(Parse(ToBytes(v1::AgentMessage()), 0, &parsed).ok()) << "an empty one";
}

}  // namespace
}  // namespace muster::service
