// Tests of the program muster-agent, from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"
#include "common/process/process.h"
#include "common/rpc/address.h"
#include "common/steady/test_bound.h"
#include "worker/agent/fake_coordinator.h"

namespace muster::agent {
namespace {

using ::testing::HasSubstr;

std::string AgentBinary() {
  return std::string(getenv("TEST_SRCDIR")) + "/" + getenv("TEST_WORKSPACE") +
         "/worker/agent/muster-agent";
}

class Program {
 public:
  using Environment = std::map<std::string, std::string>;

  explicit Program(const std::vector<std::string>& arguments,
                   const Environment& environment = {{"XDG_STATE_HOME", testing::TempDir()}}) {
    std::vector<std::string> argv = {AgentBinary()};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    auto process = spawner_.Spawn({.argv = argv,
                                   .environment = environment,
                                   .grouping = process::Grouping::kOwnSession,
                                   .output = process::Output::kPipe,
                                   .parent_death_signal = SIGKILL});
    EXPECT_TRUE(process.ok()) << process.status();
    process_ = *std::move(process);
  }
  process::Process* operator->() { return process_.get(); }
  process::Exit End() {
    auto exit = process_->Wait(kTestBound);
    EXPECT_TRUE(exit.has_value()) << "it does not end";
    return exit.value_or(process::Exit{});
  }
  // Reads the program's output until this text has come.
  void AwaitOutput(const std::string& text) {
    while (said_.find(text) == std::string::npos) {
      pollfd ready{.fd = process_->output(), .events = POLLIN, .revents = 0};
      ASSERT_EQ(poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(kTestBound))), 1)
          << "it does not say '" << text << "': " << said_;
      ASSERT_TRUE(Read()) << "it ended without saying '" << text << "': " << said_;
    }
  }
  // Returns the output; call it after the program's end.
  std::string Output() {
    Read();
    return said_;
  }

 private:
  bool Read() {
    char buffer[8192];
    const ssize_t count = read(process_->output(), buffer, sizeof(buffer));
    said_.append(buffer, std::max<ssize_t>(count, 0));
    return count > 0;
  }

  process::Spawner spawner_;
  std::unique_ptr<process::Process> process_;
  std::string said_;
};

constexpr char kForever[] = "echo ready; exec sleep 1000";

TEST(MusterAgent, KilledItTakesItsWorkersWithIt) {
  FakeCoordinator coordinator;
  Program agent(
      {"--coordinator", coordinator.address(), "--slots", "2", "--worker", ScriptedWorker()});
  coordinator.AwaitHello();
  coordinator.StartWorker(Worker(kForever, 0));
  coordinator.StartWorker(Worker(kForever, 1));
  Watched first(coordinator.AwaitStarted(Worker(kForever, 0)).pid());
  Watched second(coordinator.AwaitStarted(Worker(kForever, 1)).pid());
  agent->Signal(SIGKILL);
  EXPECT_EQ(agent.End().signal, SIGKILL);
  EXPECT_TRUE(first.Ends());
  EXPECT_TRUE(second.Ends());
}

TEST(MusterAgent, AfterSigtermItExitsWithZeroOnceItsWorkersHaveEnded) {
  FakeCoordinator coordinator;
  Program agent(
      {"--coordinator", coordinator.address(), "--slots", "1", "--worker", ScriptedWorker()});
  coordinator.AwaitHello();
  coordinator.StartWorker(Worker(kForever));
  Watched worker(coordinator.AwaitStarted(Worker(kForever)).pid());
  kill(agent->pid(), SIGTERM);
  coordinator.Await([](const auto& message) { return message.has_draining(); });
  coordinator.StopWorker(Worker(kForever), absl::Seconds(2));
  coordinator.AwaitExit(Worker(kForever));
  coordinator.AckExit(Worker(kForever));
  EXPECT_EQ(agent.End(), process::Exit{}) << agent.Output();
  EXPECT_TRUE(worker.Ends());
}

TEST(MusterAgent, OtherSignalsAreLikeSigtermAndSigquitWaitsForNobody) {
  for (const int signal : {SIGUSR1, SIGQUIT}) {
    FakeCoordinator coordinator;
    Program agent(
        {"--coordinator", coordinator.address(), "--slots", "1", "--worker", ScriptedWorker()});
    coordinator.AwaitHello();
    const auto worker = Worker("trap '' TERM; echo ready; while :; do sleep 1; done");
    coordinator.StartWorker(worker);
    coordinator.AwaitLine("ready");
    kill(agent->pid(), signal);
    // Not even SIGTERM ends this worker.
    if (signal != SIGQUIT) {
      coordinator.Await([](const auto& message) { return message.has_draining(); });
      kill(agent->pid(), SIGTERM);  // a repeat
      coordinator.StopWorker(worker, absl::ZeroDuration());
    }
    EXPECT_EQ(agent.End(), process::Exit{}) << agent.Output();
  }
}

TEST(MusterAgent, ItWaitsForACoordinatorThatIsStartedLater) {
  FakeCoordinator coordinator;
  const files::TempDir folder;
  // The path is so long that the socket is not in the state directory. Only the file `address`
  // names the socket.
  const std::string state = folder.Path(std::string(120, 's'));
  ASSERT_TRUE(files::CreateDirectories(state).ok());
  Program agent({"--coordinator", state, "--slots", "1", "--state", folder.Path("agent"),
                 "--worker", ScriptedWorker()});
  agent.AwaitOutput("waiting for it");
  ASSERT_TRUE(WriteAddress(state, coordinator.address()).ok());
  coordinator.AwaitHello();
  kill(agent->pid(), SIGTERM);
  EXPECT_EQ(agent.End(), process::Exit{}) << agent.Output();
}

TEST(MusterAgent, WhileItWaitsForACoordinatorItCanBeStopped) {
  const files::TempDir folder;
  Program agent({"--coordinator", folder.Path(std::string(120, 's')), "--slots", "1"});
  agent.AwaitOutput("waiting for it");
  kill(agent->pid(), SIGTERM);
  EXPECT_EQ(agent.End(), process::Exit{}) << agent.Output();
}

TEST(MusterAgent, WrongArgumentsAreAUsageError) {
  Program nowhere({"--coordinator", "host:99999", "--slots", "1"});
  EXPECT_EQ(nowhere.End().code, 2);
  EXPECT_THAT(nowhere.Output(), HasSubstr("--coordinator: address 'host:99999': expected"));
  Program none({"--coordinator", "127.0.0.1:1", "--slots", "0"});
  EXPECT_EQ(none.End().code, 2);
  EXPECT_THAT(none.Output(), HasSubstr("--slots"));
  for (const char* slots : {"4097", "4294967295"}) {
    Program many({"--coordinator", "127.0.0.1:1", "--slots", slots});
    EXPECT_EQ(many.End().code, 2);
    EXPECT_THAT(many.Output(), HasSubstr("1 to 4096"));
  }
  Program folder({"--coordinator", "127.0.0.1:1", "--slots", "1", "--plugins", "/nowhere"});
  EXPECT_EQ(folder.End().code, 2);
  EXPECT_THAT(folder.Output(), HasSubstr("--plugins /nowhere: expected a folder that exists"));
  Program name({"--coordinator", "127.0.0.1:1", "--slots", "1", "--pass-env", "A=1"});
  EXPECT_EQ(name.End().code, 2);
  EXPECT_THAT(name.Output(), HasSubstr("--pass-env A=1: expected the name of an environment"));
}

TEST(MusterAgent, AMissingWorkerBinaryIsNamed) {
  Program agent(
      {"--coordinator", "127.0.0.1:1", "--slots", "1", "--worker", "/no/such/muster-worker"});
  EXPECT_EQ(agent.End().code, 1);
  EXPECT_THAT(agent.Output(), HasSubstr("no worker binary at '/no/such/muster-worker'"));
}

TEST(MusterAgent, WhatItKeepsIsAllInTheStateDirectoryThatIsGiven) {
  FakeCoordinator coordinator;
  const files::TempDir given;
  const files::TempDir users;
  Program agent({"--coordinator", coordinator.address(), "--slots", "1", "--worker",
                 ScriptedWorker(), "--state", given.Path("state")},
                {{"XDG_STATE_HOME", users.path()}, {"HOME", users.path()}});
  EXPECT_FALSE(coordinator.AwaitHello().agent_id().empty());
  kill(agent->pid(), SIGTERM);
  EXPECT_EQ(agent.End(), process::Exit{}) << agent.Output();
  EXPECT_TRUE(std::filesystem::exists(given.Path("state/agent-id")));
  EXPECT_TRUE(std::filesystem::is_directory(given.Path("state/spool")));
  EXPECT_TRUE(std::filesystem::is_empty(users.path()));
}

TEST(MusterAgent, WithoutAHomeItKeepsItsStateWhereSystemdSays) {
  FakeCoordinator coordinator;
  const files::TempDir units;
  Program agent({"--coordinator", coordinator.address(), "--slots", "1", "--worker",
                 ScriptedWorker(), "--node", "n"},
                {{"STATE_DIRECTORY", units.path()}, {"XDG_STATE_HOME", ""}, {"HOME", ""}});
  EXPECT_FALSE(coordinator.AwaitHello().agent_id().empty());
  kill(agent->pid(), SIGTERM);
  EXPECT_EQ(agent.End(), process::Exit{}) << agent.Output();
  std::string name = "agent-n-" + coordinator.address();
  std::replace(name.begin(), name.end(), ':', '-');
  EXPECT_TRUE(std::filesystem::is_directory(units.Path(name + "/spool")));
}

TEST(MusterAgent, WithoutAPlaceForItsStateItDoesNotStartAndNamesTheFlag) {
  const files::TempDir dir;
  ASSERT_TRUE(files::WriteAtomically(dir.Path("file"), "x").ok());
  const std::vector<std::string> arguments = {"--coordinator", "127.0.0.1:1",   "--slots", "1",
                                              "--worker",      ScriptedWorker()};
  Program agent(arguments, {{"XDG_STATE_HOME", dir.Path("file")}});
  EXPECT_EQ(agent.End().code, 1);
  const std::string output = agent.Output();
  EXPECT_THAT(output, HasSubstr(dir.Path("file")));
  EXPECT_THAT(output, HasSubstr("--state"));
}

}  // namespace
}  // namespace muster::agent
