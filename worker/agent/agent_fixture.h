// Agents that run scripted workers for a FakeCoordinator, for tests.
#ifndef MUSTER_WORKER_AGENT_AGENT_FIXTURE_H_
#define MUSTER_WORKER_AGENT_AGENT_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "worker/agent/agent.h"
#include "worker/agent/fake_coordinator.h"

namespace muster::agent {

inline constexpr char kForever[] = "echo ready; exec sleep 1000";
inline constexpr char kIgnoresSigterm[] = "trap '' TERM; echo ready; while :; do sleep 1; done";

inline AgentOptions Options(const FakeCoordinator& coordinator) {
  return {.coordinator = coordinator.address(),
          .node = "node-1",
          .worker = ScriptedWorker(),
          // No drain: a test's end does not wait until jobs move away.
          .core = {.slots = 2,
                   .drain_timeout = absl::ZeroDuration(),
                   .report_grace = absl::Milliseconds(1)},
          .first_retry = absl::Milliseconds(5),
          .last_retry = absl::Milliseconds(20)};
}

inline std::unique_ptr<Agent> MustStart(const AgentOptions& options) {
  auto agent = Agent::Start(options);
  EXPECT_TRUE(agent.ok()) << agent.status();
  return agent.ok() ? *std::move(agent) : nullptr;
}

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_AGENT_FIXTURE_H_
