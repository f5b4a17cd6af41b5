#include "worker/agent/coordinator_link.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proto/muster/v1/agent_service.pb.h"
#include "worker/agent/core/events.h"
#include "worker/agent/core/worker_record.h"
#include "worker/agent/log_queue.h"
#include "worker/agent/wire.h"

namespace muster::agent {
namespace {

const WorkerId kA{.job = "a", .generation = 1, .rank = 0, .incarnation = "i"};
const WorkerId kB{.job = "b", .generation = 1, .rank = 0, .incarnation = "i"};

class OutboxTest : public testing::Test {
 protected:
  // Returns the messages that are sent now, each as one word.
  std::vector<std::string> TakeAll(bool welcomed) {
    std::vector<std::string> taken;
    while (const auto message = outbox_.Take(welcomed)) {
      if (message->has_worker_log()) {
        for (const std::string& line : message->worker_log().lines()) taken.push_back(line);
      } else if (message->has_heartbeat()) {
        taken.push_back("heartbeat");
      } else if (message->has_worker_exit()) {
        taken.push_back("exit of " + message->worker_exit().worker().job_id());
      } else {
        taken.push_back(message->has_hello() ? "hello" : message->ShortDebugString());
      }
    }
    return taken;
  }
  static v1::AgentMessage Hello() {
    v1::AgentMessage message;
    message.mutable_hello();
    return message;
  }
  static v1::AgentMessage Heartbeat() {
    v1::AgentMessage message;
    message.mutable_heartbeat();
    return message;
  }
  void PushExit(const WorkerId& worker) {
    outbox_.PushAfterLogs(worker, ToMessage(SendExit{{.worker = worker, .pid = 7}}));
  }

  LogQueue logs_{{}};
  Outbox outbox_{&logs_};
};

using Taken = std::vector<std::string>;

TEST_F(OutboxTest, LinesOfAWorkerComeBeforeItsExitAndOtherLinesLast) {
  logs_.Push(kB, {"of b"});
  logs_.Push(kA, {"of a"});
  PushExit(kA);
  outbox_.PushHeartbeat(Heartbeat());
  EXPECT_EQ(TakeAll(true), (Taken{"heartbeat", "of a", "exit of a", "of b"}));
}

TEST_F(OutboxTest, BeforeTheWelcomeLinesWaitAlsoThoseOfAWorkerThatHasEnded) {
  outbox_.Push(Hello());
  logs_.Push(kA, {"of a"});
  PushExit(kA);
  EXPECT_EQ(TakeAll(false), (Taken{"hello"}));
  // The stream was refused, so the next Hello reports the exits.
  outbox_.Clear();
  EXPECT_EQ(TakeAll(true), (Taken{"of a"}));
}

TEST_F(OutboxTest, OneHeartbeatIsEnough) {
  outbox_.PushHeartbeat(Heartbeat());
  outbox_.PushHeartbeat(Heartbeat());
  EXPECT_EQ(TakeAll(true), (Taken{"heartbeat"}));
}

}  // namespace
}  // namespace muster::agent
