#include "common/process/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <fstream>
#include <memory>
#include <string>

#include "common/steady/test_bound.h"

namespace muster::process {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

SpawnOptions Shell(const std::string& script) {
  return {.argv = {"/bin/sh", "-c", script}, .output = Output::kPipe};
}

std::unique_ptr<Process> MustSpawn(Spawner& spawner, const SpawnOptions& options) {
  auto process = spawner.Spawn(options);
  EXPECT_TRUE(process.ok()) << process.status();
  return process.ok() ? *std::move(process) : nullptr;
}

// Reads until all holders of the pipe have closed it, or until `stop` was read.
std::string ReadOutput(const Process& process, const std::string& stop = "") {
  std::string text;
  char buffer[4096];
  while (stop.empty() || text.find(stop) == std::string::npos) {
    pollfd poller = {.fd = process.output(), .events = POLLIN, .revents = 0};
    if (poll(&poller, 1, static_cast<int>(absl::ToInt64Milliseconds(kTestBound))) <= 0) {
      ADD_FAILURE() << "nothing comes any more; so far: " << text;
      break;
    }
    const ssize_t count = read(process.output(), buffer, sizeof(buffer));
    if (count <= 0) break;
    text.append(buffer, count);
  }
  return text;
}

std::string OutputOf(Spawner& spawner, const SpawnOptions& options) {
  auto process = MustSpawn(spawner, options);
  std::string text = ReadOutput(*process);
  EXPECT_EQ(process->Wait(kTestBound), Exit{});
  return text;
}

TEST(Process, ExitCodeIsReportedAndStaysTheSame) {
  Spawner spawner;
  auto process = MustSpawn(spawner, Shell("exit 7"));
  EXPECT_EQ(process->Wait(kTestBound), Exit{.code = 7});
  EXPECT_EQ(process->Wait(absl::ZeroDuration()), Exit{.code = 7});
  EXPECT_EQ(process->Stop(kTestBound).ToString(), "exit code 7");
}

TEST(Process, SignalIsReported) {
  Spawner spawner;
  auto process = MustSpawn(spawner, Shell("kill -9 $$"));
  auto exit = process->Wait(kTestBound);
  EXPECT_EQ(exit, Exit{.signal = SIGKILL});
  EXPECT_EQ(exit->ToString(), "killed by signal 9 (Killed)");
}

TEST(Process, WaitEndsAtItsTimeout) {
  Spawner spawner;
  auto process = MustSpawn(spawner, Shell("exec sleep 1000"));
  EXPECT_EQ(process->Wait(absl::ZeroDuration()), std::nullopt);
  EXPECT_EQ(process->Wait(absl::Milliseconds(2)), std::nullopt);
}

TEST(Process, BothOutputsGoIntoThePipe) {
  Spawner spawner;
  EXPECT_EQ(OutputOf(spawner, Shell("echo out; echo err >&2")), "out\nerr\n");
}

TEST(Process, EnvironmentIsPassedThroughAndOverridden) {
  setenv("MUSTER_TEST_KEPT", "kept", 1);
  setenv("MUSTER_TEST_CHANGED", "old", 1);
  Spawner spawner;
  SpawnOptions options = Shell("echo $MUSTER_TEST_KEPT $MUSTER_TEST_CHANGED $MUSTER_TEST_NEW");
  options.environment = {{"MUSTER_TEST_CHANGED", "changed"}, {"MUSTER_TEST_NEW", "new"}};
  EXPECT_EQ(OutputOf(spawner, options), "kept changed new\n");
}

TEST(Process, OnlyChosenVariablesArePassedThrough) {
  setenv("MUSTER_TEST_KEPT", "kept", 1);
  setenv("MUSTER_TEST_SECRET", "secret", 1);
  Spawner spawner;
  SpawnOptions options{.argv = {"/usr/bin/env"}, .output = Output::kPipe};
  options.inherits = [](const std::string& name) { return name == "MUSTER_TEST_KEPT"; };
  options.environment = {{"MUSTER_TEST_NEW", "new"}};
  EXPECT_EQ(OutputOf(spawner, options), "MUSTER_TEST_KEPT=kept\nMUSTER_TEST_NEW=new\n");
}

TEST(Process, NothingOfTheParentIsInherited) {
  const Fd open_here(open("/dev/null", O_RDONLY));  // Without O_CLOEXEC, on purpose.
  ASSERT_GE(open_here.get(), 0);
  signal(SIGPIPE, SIG_IGN);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  Spawner spawner;
  pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
  // Descriptor 3 is opened by ls itself.
  EXPECT_EQ(OutputOf(spawner, {.argv = {"/bin/ls", "/proc/self/fd"}, .output = Output::kPipe}),
            "0\n1\n2\n3\n");
  EXPECT_EQ(OutputOf(spawner, Shell("readlink /proc/self/fd/0")), "/dev/null\n");
  // 80000000 is signal 32, which glibc uses and no program can set.
  EXPECT_THAT(OutputOf(spawner, Shell("grep -E 'Sig(Blk|Ign)' /proc/self/status")),
              MatchesRegex("SigBlk:\t0000000000000000\nSigIgn:\t00000000[08]0000000\n"));
}

TEST(Process, SignalsWaitUntilTheProgramCanHandleThemAndNohupIsInherited) {
  signal(SIGHUP, SIG_IGN);
  Spawner spawner;
  // Runs grep without a shell, because some shells unblock all signals.
  SpawnOptions options{.argv = {"/bin/grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"},
                       .output = Output::kPipe};
  options.blocked = {SIGTERM, SIGUSR1};
  const std::string status = OutputOf(spawner, options);
  signal(SIGHUP, SIG_DFL);
  EXPECT_THAT(status,
              MatchesRegex("SigBlk:\t0000000000004200\nSigIgn:\t00000000[08]0000001\n"));
}

TEST(Process, HasItsOwnGroupOrSession) {
  Spawner spawner;
  auto group = MustSpawn(spawner, Shell("exec sleep 1000"));
  EXPECT_EQ(getpgid(group->pid()), group->pid());
  EXPECT_EQ(getsid(group->pid()), getsid(0));
  SpawnOptions options = Shell("exec sleep 1000");
  options.grouping = Grouping::kOwnSession;
  auto session = MustSpawn(spawner, options);
  EXPECT_EQ(getsid(session->pid()), session->pid());
}

TEST(Process, AMissingBinaryIsAnErrorWithItsPath) {
  Spawner spawner;
  const absl::Status status = spawner.Spawn({.argv = {"/no/such/program"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/program: No such file"));
}

TEST(Process, AFileThatCannotBeExecutedIsAnErrorWithItsPath) {
  const std::string path = std::string(getenv("TEST_TMPDIR")) + "/not_executable";
  std::ofstream(path) << "text";
  Spawner spawner;
  const absl::Status status = spawner.Spawn({.argv = {path}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_EQ(spawner.Spawn({}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Process, StopIsPoliteFirst) {
  Spawner spawner;
  auto process =
      MustSpawn(spawner, Shell("trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done"));
  ReadOutput(*process, "ready");
  EXPECT_EQ(process->Stop(kTestBound), Exit{.code = 3});
}

TEST(Process, StopKillsWhatIgnoresSigterm) {
  Spawner spawner;
  auto process = MustSpawn(spawner, Shell("trap '' TERM; echo ready; while :; do sleep 1; done"));
  ReadOutput(*process, "ready");
  EXPECT_EQ(process->Stop(absl::Milliseconds(1)), Exit{.signal = SIGKILL});
}

TEST(Process, GrandchildrenAreKilledWhenItHasEnded) {
  Spawner spawner;
  auto process = MustSpawn(spawner, Shell("sleep 1000 & echo started; exit 0"));
  EXPECT_EQ(process->Wait(kTestBound), Exit{});
  // The grandchild held the pipe: the end of the pipe shows that the grandchild has ended.
  EXPECT_EQ(ReadOutput(*process), "started\n");
}

TEST(Process, DestructorKillsTheGroup) {
  Spawner spawner;
  auto process = MustSpawn(spawner, Shell("exec sleep 1000"));
  const pid_t pid = process->pid();
  process.reset();
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(Process, ParentDeathSignalComesWithTheSpawnersEnd) {
  auto spawner = std::make_unique<Spawner>();
  SpawnOptions options = Shell("exec sleep 1000");
  auto free = MustSpawn(*spawner, options);
  options.parent_death_signal = SIGKILL;
  auto bound = MustSpawn(*spawner, options);
  spawner.reset();
  EXPECT_EQ(bound->Wait(kTestBound), Exit{.signal = SIGKILL});
  EXPECT_EQ(free->Wait(absl::ZeroDuration()), std::nullopt);
}

}  // namespace
}  // namespace muster::process
