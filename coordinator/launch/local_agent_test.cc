#include "coordinator/launch/local_agent.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/files/temp_dir.h"

namespace muster::launch {
namespace {

// A fake agent. It writes its process number and arguments to a named pipe, which the test reads,
// and sleeps until its end.
class LocalAgentTest : public testing::Test {
 protected:
  LocalAgentTest() {
    EXPECT_EQ(mkfifo(pipe_.c_str(), 0600), 0);
    std::ofstream script(program_);
    script << "#!/bin/sh\necho $$ \"$@\" > " << pipe_ << "\nexec sleep 1000\n";
    script.close();
    EXPECT_EQ(chmod(program_.c_str(), 0700), 0);
    options_ = {.program = program_,
                .coordinator = "127.0.0.1:4242",
                .slots = 2,
                .state_directory = dir_.path()};
  }

  // Waits for the next agent to start. Returns its process number and arguments.
  std::pair<pid_t, std::string> Started() {
    std::ifstream pipe(pipe_);
    pid_t pid = 0;
    std::string arguments;
    pipe >> pid >> std::ws;
    std::getline(pipe, arguments);
    return {pid, arguments};
  }
  static bool Lives(pid_t pid) { return kill(pid, 0) == 0; }

  files::TempDir dir_;
  const std::string pipe_ = dir_.Path("pipe");
  const std::string program_ = dir_.Path("agent");
  LocalAgentOptions options_;
};

TEST_F(LocalAgentTest, StartsTheAgentInASessionOfItsOwnAndEndsItAtTheEnd) {
  auto agent = LocalAgent::Start(options_);
  ASSERT_TRUE(agent.ok()) << agent.status();
  const auto [pid, arguments] = Started();
  EXPECT_EQ(arguments, absl::StrCat("--coordinator 127.0.0.1:4242 --slots 2 --node local --state ",
                                    dir_.Path("local-agent"), " --spool ",
                                    dir_.Path("local-agent/spool"), " --exit-with-lease"));
  EXPECT_EQ(getsid(pid), pid);
  agent->reset();
  EXPECT_FALSE(Lives(pid));
  EXPECT_FALSE(files::ReadFile(dir_.Path("local-agent.pid")).ok());
}

TEST_F(LocalAgentTest, AnAgentThatEndsIsStartedAnew) {
  auto agent = LocalAgent::Start(options_);
  ASSERT_TRUE(agent.ok()) << agent.status();
  const pid_t first = Started().first;
  kill(first, SIGKILL);
  const pid_t second = Started().first;
  EXPECT_NE(second, first);
  EXPECT_TRUE(Lives(second));
}

TEST_F(LocalAgentTest, OneThatIsLeftIsNotStartedAnew) {
  auto agent = LocalAgent::Start(options_);
  ASSERT_TRUE(agent.ok()) << agent.status();
  const pid_t pid = Started().first;
  (*agent)->Leave();
  EXPECT_FALSE((*agent)->HasEnded());
  (*agent)->Signal(SIGKILL);
  while (!(*agent)->HasEnded()) {
  }
  agent->reset();
  EXPECT_FALSE(Lives(pid));
}

// Leaves the agent of a killed coordinator: a child process starts an agent and is killed.
pid_t LeaveAnAgent(const LocalAgentOptions& options, const std::function<pid_t()>& started) {
  int ready[2];
  if (pipe(ready) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    auto agent = LocalAgent::Start(options);
    // The agent's record is complete when the agent has started.
    const char byte = agent.ok() ? 1 : 0;
    if (write(ready[1], &byte, 1) == 1) pause();
    _exit(0);
  }
  close(ready[1]);
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 1);
  close(ready[0]);
  const pid_t pid = started();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return pid;
}

TEST_F(LocalAgentTest, OutlivesAKilledCoordinatorAndIsTakenOver) {
  const pid_t pid = LeaveAnAgent(options_, [&] { return Started().first; });
  ASSERT_TRUE(Lives(pid));
  auto agent = LocalAgent::Start(options_);
  ASSERT_TRUE(agent.ok()) << agent.status();
  EXPECT_TRUE(Lives(pid));
  // The agent is also started again after its end.
  kill(pid, SIGKILL);
  const pid_t next = Started().first;
  EXPECT_TRUE(Lives(next));
}

TEST_F(LocalAgentTest, OneThatSpeaksToAnotherAddressIsReplaced) {
  const pid_t pid = LeaveAnAgent(options_, [&] { return Started().first; });
  options_.coordinator = "127.0.0.1:5000";
  auto agent = LocalAgent::Start(options_);
  ASSERT_TRUE(agent.ok()) << agent.status();
  const auto [next, arguments] = Started();
  EXPECT_NE(next, pid);
  EXPECT_NE(arguments.find("127.0.0.1:5000"), std::string::npos);
}

TEST_F(LocalAgentTest, OneThatWasStartedWithOtherArgumentsIsReplaced) {
  options_.more = {"--plugins", "/a b"};
  const pid_t pid = LeaveAnAgent(options_, [&] { return Started().first; });
  {
    auto same = LocalAgent::Start(options_);
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_TRUE(Lives(pid));
  }
  const pid_t other = LeaveAnAgent(options_, [&] { return Started().first; });
  options_.more = {};
  auto agent = LocalAgent::Start(options_);
  ASSERT_TRUE(agent.ok()) << agent.status();
  const auto [next, arguments] = Started();
  EXPECT_NE(next, other);
  EXPECT_EQ(arguments.find("--plugins"), std::string::npos);
}

TEST_F(LocalAgentTest, ARecordOfAnotherProcessIsNotBelieved) {
  // The record has this process's number with a wrong start time, like a number that is used again.
  ASSERT_TRUE(files::WriteAtomically(dir_.Path("local-agent.pid"),
                                     std::to_string(getpid()) + " 1 127.0.0.1:4242 2\n")
                  .ok());
  auto agent = LocalAgent::Start(options_);
  ASSERT_TRUE(agent.ok()) << agent.status();
  EXPECT_NE(Started().first, getpid());
}

TEST_F(LocalAgentTest, AMissingProgramIsNamed) {
  options_.program = "/nowhere/muster-agent";
  const auto agent = LocalAgent::Start(options_);
  EXPECT_EQ(agent.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(agent.status().message().find("/nowhere/muster-agent"), absl::string_view::npos);
}

}  // namespace
}  // namespace muster::launch
