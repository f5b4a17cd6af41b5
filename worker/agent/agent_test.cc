#include "worker/agent/agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/slots/slots.h"
#include "common/steady/test_bound.h"
#include "worker/agent/agent_fixture.h"
#include "worker/agent/fake_coordinator.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Agent, SaysWhoItIs) {
  FakeCoordinator coordinator;
  auto agent = MustStart(Options(coordinator));
  const v1::AgentHello hello = coordinator.AwaitHello();
  EXPECT_EQ(hello.node(), "node-1");
  EXPECT_EQ(hello.slots(), 2);
  EXPECT_EQ(hello.host(), "127.0.0.1");
  EXPECT_FALSE(hello.incarnation().empty());
  EXPECT_FALSE(hello.version().empty());
  EXPECT_EQ(hello.running_size() + hello.exits_size(), 0);
}

TEST(Agent, HeartbeatsCome) {
  FakeCoordinator coordinator;
  auto agent = MustStart(Options(coordinator));
  coordinator.Await([](const auto& message) { return message.has_heartbeat(); });
  coordinator.Clear();
  coordinator.Await([](const auto& message) { return message.has_heartbeat(); });
}

TEST(Agent, AWorkerGetsItsIdentityAndItsExitCodeAndTailAreReported) {
  FakeCoordinator coordinator;
  auto agent = MustStart(Options(coordinator));
  coordinator.AwaitHello();
  const auto worker = Worker("shift 4; echo \"$*\"; echo threads $OMP_NUM_THREADS >&2; exit 3", 1);
  coordinator.StartWorker(worker, 1);

  const v1::WorkerExit exit = coordinator.AwaitExit(worker);
  EXPECT_EQ(exit.cause_case(), v1::WorkerExit::kExitCode);
  EXPECT_EQ(exit.exit_code(), 3);
  EXPECT_EQ(exit.pid(), coordinator.AwaitStarted(worker).pid());
  const std::vector<std::string> tail = absl::StrSplit(exit.log_tail(), '\n');
  EXPECT_THAT(
      tail,
      ElementsAre(absl::StrCat("--generation 1 --rank 1 --incarnation incarnation-1 --agent-pid ",
                               getpid()),
                  "threads 1"));
}

TEST(Agent, AWorkerSeesItsOwnGpuAndHasTheThreadsOfItsJob) {
  FakeCoordinator coordinator;
  AgentOptions options = Options(coordinator);
  options.gpus = {{0, "GPU-a", "NVIDIA Test", 1000}, {3, "GPU-b", "NVIDIA Test", 2000}};
  auto agent = MustStart(options);
  const v1::AgentHello hello = coordinator.AwaitHello();
  ASSERT_EQ(hello.gpus_size(), 2);
  EXPECT_EQ(hello.gpus(1).index(), 3);
  EXPECT_EQ(hello.gpus(1).uuid(), "GPU-b");
  EXPECT_EQ(hello.gpus(1).name(), "NVIDIA Test");
  EXPECT_EQ(hello.gpus(1).memory_bytes(), 2000);
  const char* script = "echo \"$OMP_NUM_THREADS '$CUDA_VISIBLE_DEVICES'\"";
  coordinator.StartWorker(Worker(script, 1), kFirstGpuSlot + 3, /*threads=*/4);
  EXPECT_EQ(coordinator.AwaitExit(Worker(script, 1)).log_tail(), "4 'GPU-b'");
  coordinator.StartWorker(Worker(script, 0), 1);
  EXPECT_EQ(coordinator.AwaitExit(Worker(script, 0)).log_tail(), "1 ''");
}

TEST(Agent, AWorkerGetsAChosenEnvironment) {
  setenv("LC_MUSTER", "passed", 1);
  setenv("SOME_TOKEN", "secret", 1);
  setenv("WANTED_A", "wanted", 1);
  FakeCoordinator coordinator;
  AgentOptions options = Options(coordinator);
  options.pass_environment = {"WANTED_*"};
  options.plugins = {.folders = {"/a", "/b"}, .own_files = true};
  auto agent = MustStart(options);
  coordinator.AwaitHello();
  const char* script =
      "echo \"$LC_MUSTER '$SOME_TOKEN' $WANTED_A $MUSTER_PLUGINS $MUSTER_OWN_PLUGINS\"";
  coordinator.StartWorker(Worker(script));
  EXPECT_EQ(coordinator.AwaitExit(Worker(script)).log_tail(), "passed '' wanted /a:/b 1");
}

TEST(Agent, AWorkersLinesComeBeforeItsExit) {
  FakeCoordinator coordinator;
  auto agent = MustStart(Options(coordinator));
  coordinator.AwaitHello();
  const auto worker = Worker("seq 1 2000; printf 'no line end'");
  coordinator.StartWorker(worker);
  const v1::WorkerExit exit = coordinator.AwaitExit(worker);

  std::vector<std::string> lines;
  for (const auto& message : coordinator.received()) {
    if (message.has_worker_exit()) break;
    const auto& batch = message.worker_log().lines();
    lines.insert(lines.end(), batch.begin(), batch.end());
  }
  ASSERT_EQ(lines.size(), 2001);
  EXPECT_EQ(lines[0], "1");
  EXPECT_EQ(lines[1999], "2000");
  EXPECT_EQ(lines[2000], "no line end");
  EXPECT_THAT(exit.log_tail(), testing::StartsWith("1962\n")) << "40 lines";
}

TEST(Agent, LongAndUnreadableLinesArrive) {
  FakeCoordinator coordinator;
  auto agent = MustStart(Options(coordinator));
  coordinator.AwaitHello();
  const auto worker =
      Worker("head -c 100000 /dev/zero | tr '\\0' x; echo; printf 'bad \\377 byte\\n'");
  coordinator.StartWorker(worker);
  coordinator.AwaitExit(worker);
  coordinator.AwaitLine(std::string(16384, 'x') + " [83616 more bytes]");
  coordinator.AwaitLine("bad \xef\xbf\xbd byte");
}

TEST(Agent, TheTailIsBoundedInBytesToo) {
  FakeCoordinator coordinator;
  auto agent = MustStart(Options(coordinator));
  coordinator.AwaitHello();
  const auto worker =
      Worker("for i in 1 2 3 4 5 6; do head -c 16000 /dev/zero | tr '\\0' $i; echo; done");
  coordinator.StartWorker(worker);
  const std::string tail = coordinator.AwaitExit(worker).log_tail();
  const std::vector<std::string> lines = absl::StrSplit(tail, '\n');
  ASSERT_EQ(lines.size(), 4) << "as many as 64 KiB hold";
  EXPECT_EQ(lines.front(), std::string(16000, '3'));
  EXPECT_EQ(lines.back(), std::string(16000, '6'));
}

TEST(Agent, ASignalIsReported) {
  FakeCoordinator coordinator;
  auto agent = MustStart(Options(coordinator));
  coordinator.AwaitHello();
  const auto worker = Worker("kill -9 $$");
  coordinator.StartWorker(worker);
  EXPECT_EQ(coordinator.AwaitExit(worker).signal(), SIGKILL);
}

TEST(Agent, AProgramThatCannotRunIsAStartError) {
  FakeCoordinator coordinator;
  AgentOptions options = Options(coordinator);
  options.worker = std::string(getenv("TEST_TMPDIR")) + "/bad-interpreter";
  std::ofstream(options.worker) << "#!/no/such/interpreter\n";
  chmod(options.worker.c_str(), 0755);
  auto agent = MustStart(options);
  coordinator.AwaitHello();
  coordinator.StartWorker(Worker(""));
  EXPECT_THAT(coordinator.AwaitExit(Worker("")).start_error(),
              HasSubstr("bad-interpreter: No such file"));
}

TEST(Agent, ARepeatedStartStartsNothing) {
  FakeCoordinator coordinator;
  auto agent = MustStart(Options(coordinator));
  coordinator.AwaitHello();
  const auto worker = Worker(kForever);
  coordinator.StartWorker(worker);
  const int64_t pid = coordinator.AwaitStarted(worker).pid();
  coordinator.Clear();
  coordinator.StartWorker(worker);
  EXPECT_EQ(coordinator.AwaitStarted(worker).pid(), pid);
}

TEST(Agent, StopIsSigtermToTheWholeGroup) {
  FakeCoordinator coordinator;
  auto agent = MustStart(Options(coordinator));
  coordinator.AwaitHello();
  const auto worker = Worker("trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done");
  coordinator.StartWorker(worker);
  coordinator.AwaitLine("ready");
  coordinator.StopWorker(worker, kTestBound);
  EXPECT_EQ(coordinator.AwaitExit(worker).exit_code(), 5);
}

TEST(Agent, StopKillsWhatIgnoresSigterm) {
  FakeCoordinator coordinator;
  auto agent = MustStart(Options(coordinator));
  coordinator.AwaitHello();
  const auto worker = Worker(kIgnoresSigterm);
  coordinator.StartWorker(worker);
  coordinator.AwaitLine("ready");
  coordinator.StopWorker(worker, absl::ZeroDuration());
  EXPECT_EQ(coordinator.AwaitExit(worker).signal(), SIGKILL);
}

TEST(Agent, StopOfAnUnknownWorkerIsAnswered) {
  FakeCoordinator coordinator;
  auto agent = MustStart(Options(coordinator));
  coordinator.AwaitHello();
  coordinator.StopWorker(Worker("never started"), absl::ZeroDuration());
  EXPECT_THAT(coordinator.AwaitExit(Worker("never started")).start_error(),
              HasSubstr("does not know"));
}

TEST(Agent, GrandchildrenEndWithTheWorker) {
  FakeCoordinator coordinator;
  auto agent = MustStart(Options(coordinator));
  coordinator.AwaitHello();
  const std::string fifo = std::string(getenv("TEST_TMPDIR")) + "/go";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const auto worker =
      Worker(absl::StrCat("sleep 1000 & echo pid $!; read line < ", fifo, "; exit 0"));
  coordinator.StartWorker(worker);
  const auto log = coordinator.Await([](const auto& m) { return m.worker_log().lines_size() > 0; });
  Watched grandchild(std::stoll(log.worker_log().lines(0).substr(4)));
  std::ofstream(fifo) << "\n";
  EXPECT_EQ(coordinator.AwaitExit(worker).exit_code(), 0);
  EXPECT_TRUE(grandchild.Ends());
}

TEST(Agent, ADescendantThatLeftTheGroupAndPrintsWithoutEndIsNotWaitedFor) {
  FakeCoordinator coordinator;
  auto agent = MustStart(Options(coordinator));
  coordinator.AwaitHello();
  const std::string fifo = std::string(getenv("TEST_TMPDIR")) + "/left";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  // The descendant ends with the reader of its pipe.
  const auto worker = Worker(
      absl::StrCat("setsid sh -c 'echo > ", fifo, "; exec yes' & read line < ", fifo, "; exit 0"));
  coordinator.StartWorker(worker);
  EXPECT_EQ(coordinator.AwaitExit(worker).exit_code(), 0);
}

TEST(Agent, ReattachesToARestartedCoordinatorWithWorkersAndUnackedExits) {
  FakeCoordinator coordinator;
  auto agent = MustStart(Options(coordinator));
  const std::string incarnation = coordinator.AwaitHello().incarnation();
  const auto running = Worker(kForever, 0);
  const auto reported = Worker("echo first; exit 1", 1);
  const auto acked = Worker("exit 2", 2);
  for (const auto& worker : {running, reported, acked}) coordinator.StartWorker(worker);
  const int64_t pid = coordinator.AwaitStarted(running).pid();
  coordinator.AwaitExit(reported);
  coordinator.AwaitExit(acked);
  coordinator.AckExit(acked);
  // Later answers on the stream show that the acknowledgement was taken.
  coordinator.StopWorker(Worker("unknown", 3), absl::ZeroDuration());
  coordinator.AwaitExit(Worker("unknown", 3));
  coordinator.AckExit(Worker("unknown", 3));
  coordinator.StopWorker(Worker("unknown", 4), absl::ZeroDuration());
  coordinator.AwaitExit(Worker("unknown", 4));

  coordinator.Stop();
  coordinator.Restart();
  const v1::AgentHello hello = coordinator.AwaitHello();
  EXPECT_EQ(hello.incarnation(), incarnation);
  ASSERT_EQ(hello.running_size(), 1);
  EXPECT_TRUE(FakeCoordinator::Same(hello.running(0).worker(), running));
  EXPECT_EQ(hello.running(0).pid(), pid);
  ASSERT_EQ(hello.exits_size(), 2);
  for (const auto& exit : hello.exits()) {
    if (exit.worker().rank() == 4) continue;
    EXPECT_TRUE(FakeCoordinator::Same(exit.worker(), reported));
    EXPECT_EQ(exit.exit_code(), 1);
    EXPECT_EQ(exit.log_tail(), "first");
  }
  // The agent still obeys the coordinator.
  coordinator.StopWorker(running, kTestBound);
  EXPECT_EQ(coordinator.AwaitExit(running).signal(), SIGTERM);
}

TEST(Agent, TheLeaseBoundsThePauseBetweenAttempts) {
  FakeCoordinator coordinator(absl::Seconds(1));
  AgentOptions options = Options(coordinator);
  options.first_retry = options.last_retry = absl::Hours(1);
  auto agent = MustStart(options);
  coordinator.AwaitHello();
  coordinator.Stop();
  coordinator.Restart();
  coordinator.AwaitHello();
}

TEST(Agent, LinesOfTheTimeWithoutCoordinatorComeLaterTheNewestOnly) {
  FakeCoordinator coordinator;
  AgentOptions options = Options(coordinator);
  options.logs.max_lines = 10;
  auto agent = MustStart(options);
  coordinator.AwaitHello();
  const std::string fifo = std::string(getenv("TEST_TMPDIR")) + "/lines";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const auto worker = Worker(absl::StrCat("echo ready; read line < ", fifo, "; seq 1 100"));
  coordinator.StartWorker(worker);
  coordinator.AwaitLine("ready");
  coordinator.RefuseWith(absl::UnavailableError("not yet"));
  coordinator.Stop();
  coordinator.Restart();
  // The refusal shows that the agent knows of the lost coordinator.
  coordinator.AwaitRefused([](const v1::AgentHello&) { return true; });
  std::ofstream(fifo) << "\n";
  // The agent has read all lines before it sees the worker's exit.
  coordinator.AwaitRefused([](const v1::AgentHello& hello) { return hello.exits_size() == 1; });
  coordinator.RefuseWith(absl::OkStatus());
  coordinator.AwaitLine("100");
  for (const auto& message : coordinator.received()) {
    for (const std::string& line : message.worker_log().lines()) EXPECT_NE(line, "50");
  }
}

TEST(Agent, AWholeLeaseWithoutCoordinatorEndsTheWorkersNotTheAgent) {
  // A lease that a busy machine can hold until the worker has started.
  FakeCoordinator coordinator(absl::Seconds(2));
  AgentOptions options = Options(coordinator);
  options.core.stop_grace = absl::Milliseconds(10);
  auto agent = MustStart(options);
  coordinator.AwaitHello();
  const auto worker = Worker(kIgnoresSigterm);
  coordinator.StartWorker(worker);
  coordinator.AwaitLine("ready");
  Watched process(coordinator.AwaitStarted(worker).pid());
  coordinator.Stop();
  EXPECT_TRUE(process.Ends());
  coordinator.Restart();
  const v1::AgentHello hello = coordinator.AwaitHello();
  if (hello.exits_size() == 1) {
    EXPECT_EQ(hello.exits(0).signal(), SIGKILL);
  } else {
    EXPECT_EQ(coordinator.AwaitExit(worker).signal(), SIGKILL);
  }
}

TEST(Agent, ALocalAgentEndsWithItsLease) {
  // A lease that a busy machine can hold until the worker has started.
  FakeCoordinator coordinator(absl::Seconds(2));
  AgentOptions options = Options(coordinator);
  options.core.after_lease = AfterLease::kQuit;
  auto agent = MustStart(options);
  coordinator.AwaitHello();
  coordinator.StartWorker(Worker(kForever));
  Watched process(coordinator.AwaitStarted(Worker(kForever)).pid());
  coordinator.Stop();
  EXPECT_EQ(agent->Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(process.Ends());
}

TEST(Agent, ACleanStopEndsTheWorkersAndReportsThem) {
  FakeCoordinator coordinator;
  AgentOptions options = Options(coordinator);
  options.core.report_grace = kTestBound;
  auto agent = MustStart(options);
  coordinator.AwaitHello();
  const auto worker = Worker(kForever);
  coordinator.StartWorker(worker);
  coordinator.AwaitLine("ready");
  agent->RequestStop();
  EXPECT_EQ(coordinator.AwaitExit(worker).signal(), SIGTERM);
  coordinator.AckExit(worker);
  EXPECT_EQ(agent->Wait(), absl::OkStatus());
}

TEST(Agent, ARefusedAgentEndsWithItsWorkersAndTheReason) {
  FakeCoordinator coordinator;
  auto agent = MustStart(Options(coordinator));
  coordinator.AwaitHello();
  coordinator.StartWorker(Worker(kForever));
  Watched process(coordinator.AwaitStarted(Worker(kForever)).pid());
  coordinator.Stop();
  coordinator.RefuseWith(
      MakeError(absl::StatusCode::kFailedPrecondition, "STALE_INCARNATION", "a newer one"));
  coordinator.Restart();
  EXPECT_EQ(ErrorReason(agent->Wait()), "STALE_INCARNATION");
  EXPECT_TRUE(process.Ends());
}

TEST(Agent, BadOptionsAreRefused) {
  FakeCoordinator coordinator;
  AgentOptions options = Options(coordinator);
  options.worker = "/no/such/muster-worker";
  EXPECT_EQ(Agent::Start(options).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Agent::Start(options).status().message()),
              HasSubstr("no worker binary at '/no/such/muster-worker'"));
  options.worker = "/etc/passwd";
  EXPECT_EQ(Agent::Start(options).status().code(), absl::StatusCode::kPermissionDenied);
  options = Options(coordinator);
  options.core.slots = 0;
  EXPECT_EQ(Agent::Start(options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster::agent
