// A stream that receives faster than the engine's thread works. There is no connection: the test
// gives the stream the bytes that gRPC would read.
#include "coordinator/service/peer_stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/steady/test_bound.h"
#include "coordinator/limits/limits.h"
#include "coordinator/membership/refusal.h"
#include "coordinator/service/engine.h"
#include "coordinator/store/memory_store.h"
#include "proto/muster/v1/agent_service.pb.h"

namespace muster::service {
namespace {

// A stream that accepts any first message as a Hello.
class Stream : public PeerStreamReactor<v1::AgentMessage, v1::AgentDirective> {
 public:
  Stream(Engine* engine, PeerStreams* streams)
      : PeerStreamReactor(engine, streams, 1, [] { return absl::OkStatus(); }) {}

  bool Sends(const v1::AgentMessage& message) { return Receive(ToBytes(message)); }
  void End(const absl::Status& why) override {
    if (ended.ok()) ended = why;
    PeerStreamReactor::End(why);
  }

  // ---- Used on the engine's thread.
  int messages = 0;
  int beats = 0;
  absl::Status ended;

 protected:
  absl::Status Take(const v1::AgentMessage&, cluster::Cluster&, absl::Time) override {
    ++messages;
    return absl::OkStatus();
  }
  bool IsBeat(const v1::AgentMessage& message) const override { return message.has_heartbeat(); }
  void TakeBeat(const v1::AgentMessage&, cluster::Cluster&, absl::Time) override { ++beats; }
  uint64_t LogLinesOf(const v1::AgentMessage& message) const override {
    return static_cast<uint64_t>(message.worker_log().lines_size());
  }
};

v1::AgentMessage Beat() {
  v1::AgentMessage message;
  message.mutable_heartbeat()->set_sequence(1);
  return message;
}

v1::AgentMessage Started() {
  v1::AgentMessage message;
  message.mutable_worker_started();
  return message;
}

v1::AgentMessage OfBytes(size_t bytes) {
  v1::AgentMessage message;
  message.mutable_spooled_reports()->add_reports(std::string(bytes, 'r'));
  return message;
}

class PeerStreamTest : public testing::Test {
 protected:
  PeerStreamTest() {
    EngineOptions options;
    options.cluster.timing.lease = absl::Hours(1);
    options.cluster.new_incarnation = [] { return "i"; };
    options.clock = [] { return absl::FromUnixSeconds(1000); };
    options.out = [](const cluster::Effect&) {};
    options.on_failure = [](const absl::Status&) {};
    engine_ = *Engine::Start(std::move(options), &store_);
    stream_ = std::make_shared<Stream>(engine_.get(), &streams_);
    stream_->Begin();
    Settle();
  }
  ~PeerStreamTest() override {
    engine_.reset();
    stream_->OnDone();
  }

  // Stops the engine's thread until Settle.
  void Block() {
    go_on_ = std::make_shared<absl::Notification>();
    engine_->Aside([go_on = go_on_](cluster::Cluster&, absl::Time) {
      go_on->WaitForNotificationWithTimeout(kTestBound);
    });
  }
  // Waits until everything that was sent is taken.
  void Settle() {
    if (go_on_ != nullptr) std::exchange(go_on_, nullptr)->Notify();
    absl::Notification done;
    engine_->Post(nullptr, [&](const absl::Status&) { done.Notify(); });
    ASSERT_TRUE(done.WaitForNotificationWithTimeout(kTestBound));
  }
  void Greet() {
    ASSERT_TRUE(stream_->Sends(Started()));
    Settle();
    ASSERT_EQ(stream_->messages, 1);
  }
  void ExpectTooMany(size_t limit) {
    EXPECT_EQ(RefusalReason(stream_->ended), "TOO_MANY_MESSAGES") << stream_->ended;
    EXPECT_EQ(AboutOf(stream_->ended)["limit"], absl::StrCat(limit));
  }

  store::MemoryStore store_;
  PeerStreams streams_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<absl::Notification> go_on_;
};

TEST_F(PeerStreamTest, BeforeTheHelloNoHeartbeatCounts) {
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(stream_->Sends(Beat()));
  Greet();
  EXPECT_EQ(stream_->beats, 0);
  ASSERT_TRUE(stream_->Sends(Beat()));
  Settle();
  EXPECT_EQ(stream_->beats, 1);
}

TEST_F(PeerStreamTest, OfManyHeartbeatsAFewWait) {
  Greet();
  Block();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(stream_->Sends(Beat()));
  Settle();
  EXPECT_EQ(stream_->beats, kLimits.heartbeats_in_line);
  ASSERT_TRUE(stream_->Sends(Beat()));
  Settle();
  EXPECT_EQ(stream_->beats, kLimits.heartbeats_in_line + 1) << "there is room again";
}

TEST_F(PeerStreamTest, BeforeTheHelloIsTakenAFewMessagesMayWait) {
  Block();
  for (int i = 0; i < kLimits.first_messages_in_line; ++i) {
    ASSERT_TRUE(stream_->Sends(Started()));
  }
  stream_->Sends(Started());
  Settle();
  EXPECT_EQ(stream_->messages, kLimits.first_messages_in_line);
  ExpectTooMany(static_cast<size_t>(kLimits.first_messages_in_line));
}

TEST_F(PeerStreamTest, AfterTheHelloMoreMessagesMayWait) {
  Greet();
  Block();
  for (int i = 0; i < 10 * kLimits.first_messages_in_line; ++i) {
    ASSERT_TRUE(stream_->Sends(Started()));
  }
  Settle();
  EXPECT_EQ(stream_->messages, 1 + 10 * kLimits.first_messages_in_line);
  EXPECT_TRUE(stream_->ended.ok());
}

TEST_F(PeerStreamTest, TheMemoryOfTheMessagesThatWaitIsLimited) {
  Greet();
  Block();
  constexpr size_t kBytes = 3 << 20;
  for (size_t sent = 0; sent <= kLimits.bytes_in_line; sent += kBytes) {
    ASSERT_TRUE(stream_->Sends(OfBytes(kBytes)));
  }
  Settle();
  EXPECT_EQ(stream_->messages, 1 + kLimits.bytes_in_line / kBytes);
  ExpectTooMany(kLimits.bytes_in_line);
}

TEST_F(PeerStreamTest, WhatWasTakenDoesNotWaitAnyMore) {
  Greet();
  constexpr size_t kBytes = 3 << 20;
  for (size_t sent = 0; sent < 2 * kLimits.bytes_in_line; sent += 2 * kBytes) {
    Block();
    ASSERT_TRUE(stream_->Sends(OfBytes(kBytes)));
    ASSERT_TRUE(stream_->Sends(OfBytes(kBytes)));
    Settle();
  }
  EXPECT_TRUE(stream_->ended.ok()) << stream_->ended;
}

TEST_F(PeerStreamTest, SoIsThatOfAllStreams) {
  Greet();
  // Other streams have reserved almost everything.
  ASSERT_TRUE(streams_.Reserve(kLimits.all_bytes_in_line - 10000));
  ASSERT_TRUE(stream_->Sends(OfBytes(5000)));
  Settle();
  ASSERT_TRUE(stream_->Sends(OfBytes(5000)));
  Settle();
  EXPECT_EQ(stream_->messages, 3) << "what was taken does not wait";
  ASSERT_TRUE(stream_->Sends(OfBytes(10000)));
  Settle();
  ExpectTooMany(kLimits.all_bytes_in_line);
}

TEST_F(PeerStreamTest, LogLinesAreLeftOutBeforeOtherMessagesHaveNoRoom) {
  Greet();
  v1::AgentMessage log;
  for (int i = 0; i < 64; ++i) log.mutable_worker_log()->add_lines(std::string(16 << 10, 'l'));
  Block();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(stream_->Sends(log));
  ASSERT_TRUE(stream_->Sends(Started()));
  Settle();
  EXPECT_LE(stream_->messages, 10);
  EXPECT_GE(stream_->messages, 4);
  EXPECT_TRUE(stream_->ended.ok());
}

TEST_F(PeerStreamTest, AfterAMessageThatIsTooLargeNothingMoreIsRead) {
  EXPECT_FALSE(stream_->Sends(OfBytes(kLimits.first_message_bytes)));
  Settle();
  EXPECT_EQ(RefusalReason(stream_->ended), "MESSAGE_TOO_LARGE");
  EXPECT_EQ(stream_->messages, 0);
}

}  // namespace
}  // namespace muster::service
