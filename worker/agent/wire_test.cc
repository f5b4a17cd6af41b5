#include "worker/agent/wire.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"

namespace muster::agent {
namespace {

const WorkerId kWorker = {.job = "a", .generation = 2, .rank = 3, .incarnation = "i"};
constexpr char kWire[] = "job_id: \"a\" generation: 2 rank: 3 incarnation: \"i\"";

v1::AgentDirective Directive(const std::string& text) {
  v1::AgentDirective directive;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &directive)) << text;
  return directive;
}

template <typename T>
T EventOf(const std::string& text) {
  const auto event = ToEvent(Directive(text));
  if (!event.has_value() || !std::holds_alternative<T>(*event)) {
    ADD_FAILURE() << text << ": another event, or none";
    return {};
  }
  return std::get<T>(*event);
}

void ExpectMessage(const v1::AgentMessage& message, const std::string& text) {
  v1::AgentMessage expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &expected)) << text;
  EXPECT_EQ(message.DebugString(), expected.DebugString());
}

TEST(AgentWire, EveryDirectiveIsAnEvent) {
  const auto welcomed = EventOf<Welcomed>(
      "welcome { heartbeat_interval { nanos: 200000000 } lease { seconds: 1 nanos: 500000000 } }");
  EXPECT_EQ(welcomed.heartbeat_interval, absl::Milliseconds(200));
  EXPECT_EQ(welcomed.lease.lease, absl::Milliseconds(1500));
  const auto terms = EventOf<Welcomed>(
      "welcome { lease { seconds: 2 } lease_margin { nanos: 200000000 } autonomy { seconds: 60 } "
      "}");
  EXPECT_EQ(terms.lease.margin, absl::Milliseconds(200));
  EXPECT_EQ(terms.lease.autonomy, absl::Minutes(1));
  EXPECT_EQ(EventOf<HeartbeatAcked>("heartbeat_ack { sequence: 3 }").sequence, 3);
  const auto acked = EventOf<HeartbeatAcked>("heartbeat_ack { sequence: 3 workers_activity: 9 }");
  EXPECT_EQ(acked.workers_activity, 9);
  const auto drain = EventOf<DrainRequested>("drain { drain: true reason: 'why' }");
  EXPECT_TRUE(drain.drain);
  EXPECT_EQ(drain.reason, "why");
  EXPECT_EQ(drain.deadline, std::nullopt);
  EXPECT_EQ(EventOf<DrainRequested>("drain { drain: true deadline { seconds: 1800 } }").deadline,
            absl::Minutes(30));
  const auto start = EventOf<StartRequested>(
      absl::StrCat("start_worker { worker {", kWire, "} slot: 4 continue_when_cut_off: true }"));
  EXPECT_EQ(start.worker, kWorker);
  EXPECT_EQ(start.slot, 4);
  EXPECT_TRUE(start.continue_when_cut_off);
  const auto stop = EventOf<StopRequested>(
      absl::StrCat("stop_worker { worker {", kWire, "} grace { seconds: 2 nanos: 500000000 } }"));
  EXPECT_EQ(stop.worker, kWorker);
  EXPECT_EQ(stop.grace, absl::Milliseconds(2500));
  EXPECT_EQ(EventOf<ExitAcked>(absl::StrCat("worker_exit_ack { worker {", kWire, "} }")).worker,
            kWorker);
}

TEST(AgentWire, AnUnknownDirectiveIsNoEvent) { EXPECT_EQ(ToEvent({}), std::nullopt); }

TEST(AgentWire, EveryEffectForTheCoordinatorIsAMessage) {
  ExpectMessage(ToMessage(SendHeartbeat{5}), "heartbeat { sequence: 5 }");
  ExpectMessage(ToMessage(SendStarted{{kWorker, 7}}),
                absl::StrCat("worker_started { worker {", kWire, "} pid: 7 }"));
  ExpectMessage(ToMessage(LogQueue::Batch{kWorker, {"one", "two"}}),
                absl::StrCat("worker_log { worker {", kWire, "} lines: 'one' lines: 'two' }"));
  ExpectMessage(
      ToMessage(SendHello{.running = {{kWorker, 7}},
                          .exits = {{.worker = kWorker, .pid = 8, .ending = ExitSignal{9}}}}),
      absl::StrCat("hello { running { worker {", kWire, "} pid: 7 } exits { worker {", kWire,
                   "} pid: 8 signal: 9 } }"));
}

TEST(AgentWire, AnExitSaysHowTheWorkerEnded) {
  const auto exit = [](const Ending& ending) {
    return ToMessage(SendExit{{.worker = kWorker, .pid = 7, .ending = ending, .log_tail = "tail"}});
  };
  const auto text = [](const std::string& cause) {
    return absl::StrCat("worker_exit { worker {", kWire, "} pid: 7 log_tail: 'tail' ", cause, "}");
  };
  ExpectMessage(exit(ExitCode{0}), text("exit_code: 0"));
  ExpectMessage(exit(ExitCode{3}), text("exit_code: 3"));
  ExpectMessage(exit(ExitSignal{15}), text("signal: 15"));
  ExpectMessage(exit(StartError{"why"}), text("start_error: 'why'"));
  ExpectMessage(
      ToMessage(SendExit{{.worker = kWorker, .ending = ExitSignal{9}, .cause = Cause::kLeaseOver}}),
      absl::StrCat("worker_exit { worker {", kWire, "} pid: 0 signal: 9 planned: LEASE_OVER }"));
}

TEST(AgentWire, TheLastLinesInAHelloAreLimitedInAll) {
  SendHello hello;
  const EndedWorker ended{.worker = kWorker, .log_tail = std::string(64 << 10, 'x')};
  hello.exits.assign(200, ended);
  const v1::AgentMessage message = ToMessage(hello);
  ASSERT_EQ(message.hello().exits_size(), 200) << "no exit is left out";
  EXPECT_EQ(message.hello().exits(15).log_tail(), ended.log_tail);
  EXPECT_EQ(message.hello().exits(16).log_tail(), "");
  EXPECT_LT(message.ByteSizeLong(), size_t{2} << 20) << "as much as a coordinator takes";
}

}  // namespace
}  // namespace muster::agent
