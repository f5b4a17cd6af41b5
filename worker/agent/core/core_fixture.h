// A fixture for tests: the agent's core with two workers, a coordinator that welcomes the agent,
// and a clock that tests move.
#ifndef MUSTER_WORKER_AGENT_CORE_CORE_FIXTURE_H_
#define MUSTER_WORKER_AGENT_CORE_CORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "worker/agent/core/core.h"
#include "worker/agent/core/worker_record.h"

namespace muster::agent {

inline const WorkerId kA = {.job = "a", .generation = 1, .rank = 0, .incarnation = "i-a"};
inline const WorkerId kB = {.job = "a", .generation = 1, .rank = 1, .incarnation = "i-b"};
inline const Welcomed kWelcome = {.heartbeat_interval = absl::Seconds(2),
                                  .lease = {.lease = absl::Seconds(10),
                                            .margin = absl::Milliseconds(250),
                                            .autonomy = absl::Hours(12)}};
inline constexpr absl::Duration kHeld = absl::Milliseconds(9750);

inline EndedWorker Exited(const WorkerId& worker, int64_t pid, int code,
                          const std::string& tail = "") {
  return {.worker = worker, .pid = pid, .ending = ExitCode{code}, .log_tail = tail};
}

inline EndedWorker With(Cause cause, EndedWorker worker) {
  worker.cause = cause;
  return worker;
}

// The core, and a clock that tests move.
class CoreTest : public ::testing::Test {
 protected:
  explicit CoreTest(CoreOptions options = {.slots = 2}) : core_(options, now_) {}

  Effects Do(const Event& event) { return core_.Handle(event, now_); }
  // Moves the clock to the core's next deadline, which must be `after` from now.
  Effects TickAfter(absl::Duration after) {
    EXPECT_EQ(core_.NextDeadline() - now_, after);
    now_ += after;
    return Do(Ticked{});
  }
  void Attach() {
    Do(Opened{});
    Do(kWelcome);
  }
  void Run(const WorkerId& worker, int64_t pid) {
    Do(StartRequested{.worker = worker, .slot = worker.rank});
    Do(Launched{.worker = worker, .pid = pid});
  }

  absl::Time now_ = absl::UnixEpoch();
  Core core_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_CORE_CORE_FIXTURE_H_
