// The agent's reports from its disk: reports that workers left there, and processes that hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/files/temp_dir.h"
#include "common/process/process.h"
#include "common/process/process_stat.h"
#include "common/spool/spool.h"
#include "worker/agent/agent.h"
#include "worker/agent/agent_fixture.h"
#include "worker/agent/fake_coordinator.h"
#include "worker/agent/hanging_processes.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;

// The script of a worker that ends while the coordinator is away, and leaves reports.
constexpr char kLeavesReports[] =
    "echo ready; while ! test -e \"$MUSTER_SPOOL.go\"; do :; done; "
    "cp \"$MUSTER_SPOOL.left\" \"$MUSTER_SPOOL\"";

TEST(Agent, WhatAWorkerLeftOnTheDiskIsToldBeforeItsExit) {
  FakeCoordinator coordinator;
  AgentOptions options = Options(coordinator);
  options.spool = std::string(getenv("TEST_TMPDIR")) + "/spool";
  auto agent = MustStart(options);
  coordinator.AwaitHello();
  const auto worker = Worker(kLeavesReports);
  const std::string path = options.spool + "/" + worker.incarnation() + ".reports";
  ASSERT_TRUE(
      WriteSpool(path + ".left", {.worker = worker.SerializeAsString(), .reports = {"one", "two"}})
          .ok());
  coordinator.StartWorker(worker);
  coordinator.AwaitLine("ready");
  coordinator.Stop();
  std::ofstream(path + ".go").close();
  coordinator.Restart();
  const auto left =
      coordinator.Await([](const auto& message) { return message.has_spooled_reports(); });
  EXPECT_TRUE(FakeCoordinator::Same(left.spooled_reports().worker(), worker));
  EXPECT_THAT(left.spooled_reports().reports(), ElementsAre("one", "two"));
  for (const auto& message : coordinator.received()) EXPECT_FALSE(message.has_worker_exit());
  coordinator.AckSpool(worker, 2);
  EXPECT_EQ(coordinator.AwaitExit(worker).exit_code(), 0);
  EXPECT_FALSE(ReadSpool(path).ok()) << "it is told";
}

TEST(Agent, WhatAFormerAgentsWorkerLeftIsToldToo) {
  FakeCoordinator coordinator;
  AgentOptions options = Options(coordinator);
  options.spool = std::string(getenv("TEST_TMPDIR")) + "/former";
  const auto worker = Worker("");
  std::filesystem::create_directory(options.spool);
  ASSERT_TRUE(WriteSpool(options.spool + "/" + worker.incarnation() + ".reports",
                         {.worker = worker.SerializeAsString(), .reports = {"one"}})
                  .ok());
  auto agent = MustStart(options);
  const v1::AgentHello hello = coordinator.AwaitHello();
  ASSERT_EQ(hello.running_size(), 1);
  EXPECT_TRUE(FakeCoordinator::Same(hello.running(0).worker(), worker));
  coordinator.Await([](const auto& message) { return message.has_spooled_reports(); });
  coordinator.AckSpool(worker, 1);
  EXPECT_EQ(coordinator.AwaitExit(worker).planned(), v1::WorkerExit::NODE_FAULT);
}

TEST(Agent, AProcessThatAFormerAgentCouldNotEndKeepsItsSlotOutOfUseUntilItIsGone) {
  FakeCoordinator coordinator;
  const files::TempDir state;
  process::Spawner spawner;
  auto spawned = spawner.Spawn({.argv = {"/bin/sleep", "1000"}});
  ASSERT_TRUE(spawned.ok()) << spawned.status();
  const pid_t pid = (*spawned)->pid();
  const uint64_t start_time = process::ReadProcessStat(pid)->start_time;
  const RunningWorker same = {.worker = {.job = "a", .generation = 1, .incarnation = "same"},
                              .pid = pid};
  RunningWorker another = same;
  another.worker.incarnation = "another";
  // The second process had the same number earlier.
  const std::vector<HangingProcess> left = {
      HangingProcess{.slot = 1, .worker = same, .start_time = start_time},
      HangingProcess{.slot = 0, .worker = another, .start_time = start_time + 1}};
  const QuarantineFile file(state.path());
  ASSERT_TRUE(file.Write(left).ok());
  AgentOptions options = Options(coordinator);
  options.state_directory = state.path();
  auto agent = MustStart(options);
  const v1::AgentHello hello = coordinator.AwaitHello();
  ASSERT_EQ(hello.quarantined_size(), 1);
  EXPECT_EQ(hello.quarantined(0).slot(), 1);
  EXPECT_EQ(hello.quarantined(0).pid(), pid);
  EXPECT_EQ(hello.quarantined(0).worker().incarnation(), "same");
  EXPECT_TRUE(hello.quarantined(0).quarantined());
  EXPECT_EQ(hello.running_size(), 0);
  EXPECT_EQ(file.Read().size(), 1);
  // A child that nobody has waited for counts as ended, too.
  kill(pid, SIGKILL);
  const auto gone = coordinator.Await([](const auto& m) { return m.has_slot_quarantine(); });
  EXPECT_EQ(gone.slot_quarantine().slot(), 1);
  EXPECT_FALSE(gone.slot_quarantine().quarantined());
  EXPECT_FALSE(std::filesystem::exists(state.Path("quarantine")));
}

TEST(Agent, AProcessThatOutlivesItsKillIsAnnouncedAndForgottenOnceItHasEnded) {
  FakeCoordinator coordinator;
  const files::TempDir state;
  AgentOptions options = Options(coordinator);
  options.state_directory = state.path();
  // Every process lives longer than this timeout.
  options.core.kill_timeout = absl::ZeroDuration();
  auto agent = MustStart(options);
  coordinator.AwaitHello();
  const auto worker = Worker(kIgnoresSigterm, 1);
  coordinator.StartWorker(worker, 1);
  coordinator.AwaitLine("ready");
  coordinator.StopWorker(worker, absl::ZeroDuration());
  EXPECT_EQ(coordinator.AwaitExit(worker).signal(), SIGKILL);
  std::vector<bool> quarantined;
  for (const auto& message : coordinator.received()) {
    if (!message.has_slot_quarantine()) continue;
    EXPECT_EQ(message.slot_quarantine().slot(), 1);
    quarantined.push_back(message.slot_quarantine().quarantined());
  }
  EXPECT_THAT(quarantined, ElementsAre(true, false));
  EXPECT_FALSE(std::filesystem::exists(state.Path("quarantine")));
}

}  // namespace
}  // namespace muster::agent
