#include "worker/agent/core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::VariantWith;

const WorkerId kA = {.job = "a", .generation = 1, .rank = 0, .incarnation = "i-a"};
const WorkerId kB = {.job = "a", .generation = 1, .rank = 1, .incarnation = "i-b"};
const Welcomed kWelcome = {.heartbeat_interval = absl::Seconds(2),
                           .lease = {.lease = absl::Seconds(10),
                                     .margin = absl::Milliseconds(250),
                                     .autonomy = absl::Hours(12)}};
constexpr absl::Duration kHeld = absl::Milliseconds(9750);
// Of a coordinator that acknowledges no heartbeat.
const Welcomed kOldWelcome = {.heartbeat_interval = absl::Seconds(2),
                              .lease = {.lease = absl::Seconds(10)}};

EndedWorker Exited(const WorkerId& worker, int64_t pid, int code, const std::string& tail = "") {
  return {.worker = worker, .pid = pid, .ending = ExitCode{code}, .log_tail = tail};
}

EndedWorker With(Cause cause, EndedWorker worker) {
  worker.cause = cause;
  return worker;
}

// The core under a hand-moved clock.
class CoreTest : public ::testing::Test {
 protected:
  explicit CoreTest(CoreOptions options = {.slots = 2}) : core_(options, now_) {}

  Effects Do(const Event& event) { return core_.Handle(event, now_); }
  // Moves the clock to the core's next deadline, which has to be `after` from now.
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

class LocalAgentCoreTest : public CoreTest {
 protected:
  LocalAgentCoreTest() : CoreTest({.slots = 2, .after_lease = AfterLease::kQuit}) {}
};

TEST_F(CoreTest, FirstHelloIsEmpty) {
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(SendHello{})));
}

TEST_F(CoreTest, StartLaunchesAndReportsStartAndExit) {
  Attach();
  EXPECT_THAT(Do(StartRequested{.worker = kA, .slot = 1}), ElementsAre(VariantWith<Launch>(Launch{kA, 1})));
  EXPECT_THAT(Do(Launched{.worker = kA, .pid = 7}),
              ElementsAre(VariantWith<SendStarted>(SendStarted{{kA, 7}})));
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitCode{3}, .log_tail = "tail"}),
              ElementsAre(VariantWith<SendExit>(SendExit{Exited(kA, 7, 3, "tail")})));
}

TEST_F(CoreTest, ARepeatedStartStartsNothing) {
  Attach();
  Do(StartRequested{.worker = kA});
  EXPECT_THAT(Do(StartRequested{.worker = kA}), IsEmpty()) << "the first one is under way";
  Do(Launched{.worker = kA, .pid = 7});
  EXPECT_THAT(Do(StartRequested{.worker = kA}), ElementsAre(VariantWith<SendStarted>(SendStarted{{kA, 7}})));
  Do(Ended{.worker = kA, .ending = ExitCode{0}});
  EXPECT_THAT(Do(StartRequested{.worker = kA}),
              ElementsAre(VariantWith<SendExit>(SendExit{Exited(kA, 7, 0)})));
  Do(ExitAcked{kA});
  EXPECT_THAT(Do(StartRequested{.worker = kA}),
              ElementsAre(VariantWith<SendExit>(SendExit{Exited(kA, 7, 0)})));
}

TEST_F(CoreTest, AStartThatIsReadWhenTheLeaseIsOverStartsNothingUntilItIsToldAgain) {
  Attach();
  now_ += kHeld;  // the process stood still
  const StartRequested start = {.worker = kA, .slot = 0};
  EXPECT_THAT(Do(start), ElementsAre(VariantWith<LeaseOver>(LeaseOver{kHeld})));
  Do(Broken{});
  Attach();
  EXPECT_THAT(Do(start), ElementsAre(VariantWith<Launch>(Launch{kA, 0})));
}

TEST_F(CoreTest, AFailedLaunchIsAnExitWithItsReason) {
  Attach();
  Do(StartRequested{.worker = kA});
  EXPECT_THAT(Do(LaunchFailed{.worker = kA, .reason = "no memory"}),
              ElementsAre(VariantWith<SendExit>(SendExit{{kA, 0, StartError{"no memory"}, "", Cause::kNodeFault}})));
}

TEST_F(CoreTest, ASlotBeyondTheOfferedIsAnError) {
  Attach();
  const Effects effects = Do(StartRequested{.worker = kA, .slot = 2});
  EXPECT_THAT(effects, ElementsAre(VariantWith<SendExit>(SendExit{
                           {kA, 0,
                            StartError{"slot 2 was asked for, counted from 0; this agent offers 2"}, "",
                            Cause::kNodeFault}})));
}

TEST_F(CoreTest, HelloCarriesRunningWorkersAndUnackedExits) {
  Attach();
  Run(kA, 7);
  Run(kB, 8);
  Do(Broken{});
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitSignal{9}, .log_tail = "last"}), IsEmpty());
  const EndedWorker exit = {kA, 7, ExitSignal{9}, "last"};
  const SendHello hello = {.running = {{kB, 8}}, .exits = {exit}};
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(hello)));
  Do(Broken{});
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(hello))) << "until acknowledged";
  Do(ExitAcked{kA});
  Do(Broken{});
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(SendHello{.running = {{kB, 8}}})));
}

TEST_F(CoreTest, StopIsSigtermThenSigkillAfterTheGrace) {
  Attach();
  Run(kA, 7);
  EXPECT_THAT(Do(StopRequested{.worker = kA, .grace = absl::Seconds(1)}),
              ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGTERM})));
  EXPECT_THAT(TickAfter(absl::Seconds(1)), ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
  EXPECT_THAT(TickAfter(absl::Seconds(1)), ElementsAre(VariantWith<SendHeartbeat>(SendHeartbeat{1})));
}

TEST_F(CoreTest, ASecondStopOnlyMakesTheGraceShorter) {
  Attach();
  Run(kA, 7);
  Do(StopRequested{.worker = kA, .grace = absl::Seconds(1)});
  EXPECT_THAT(Do(StopRequested{.worker = kA, .grace = absl::Seconds(50)}), IsEmpty());
  EXPECT_EQ(core_.NextDeadline(), now_ + absl::Seconds(1));
  EXPECT_THAT(Do(StopRequested{.worker = kA, .grace = absl::ZeroDuration()}),
              ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
}

TEST_F(CoreTest, AStopThatComesBeforeTheLaunchIsDoneIsNotForgotten) {
  Attach();
  Do(StartRequested{.worker = kA});
  EXPECT_THAT(Do(StopRequested{.worker = kA, .grace = absl::Seconds(1)}), IsEmpty());
  EXPECT_THAT(Do(Launched{.worker = kA, .pid = 7}),
              ElementsAre(VariantWith<SendStarted>(SendStarted{{kA, 7}}),
                          VariantWith<SendSignal>(SendSignal{kA, SIGTERM})));
}

TEST_F(CoreTest, StopOfAnEndedWorkerRepeatsItsExit) {
  Attach();
  Run(kA, 7);
  Do(Ended{.worker = kA, .ending = ExitCode{1}});
  EXPECT_THAT(Do(StopRequested{.worker = kA}),
              ElementsAre(VariantWith<SendExit>(SendExit{Exited(kA, 7, 1)})));
}

TEST_F(CoreTest, StopOfAnUnknownWorkerIsAnsweredAndItNeverStarts) {
  Attach();
  const SendExit unknown = {
      {kA, 0, StartError{"this agent does not know the worker"}, "", Cause::kStoppedAsTold}};
  EXPECT_THAT(Do(StopRequested{.worker = kA}), ElementsAre(VariantWith<SendExit>(unknown)));
  EXPECT_THAT(Do(StartRequested{.worker = kA}), ElementsAre(VariantWith<SendExit>(unknown)));
}

TEST_F(CoreTest, HeartbeatsComeWhileAttachedOnly) {
  Do(Opened{});
  EXPECT_THAT(Do(Ticked{}), IsEmpty());
  Do(kWelcome);
  EXPECT_THAT(TickAfter(absl::Seconds(2)), ElementsAre(VariantWith<SendHeartbeat>(SendHeartbeat{1})));
  EXPECT_THAT(TickAfter(absl::Seconds(2)), ElementsAre(VariantWith<SendHeartbeat>(SendHeartbeat{2})));
  Do(Broken{});
  EXPECT_EQ(core_.NextDeadline(), absl::UnixEpoch() + kHeld);
}

TEST_F(CoreTest, ALeaseWithoutAnAnswerKillsTheWorkersAlsoWhereTheStreamStands) {
  Attach();
  Run(kA, 7);
  EXPECT_THAT(TickAfter(absl::Seconds(2)), ElementsAre(VariantWith<SendHeartbeat>(SendHeartbeat{1})));
  now_ += absl::Milliseconds(7749);
  Do(Ticked{});
  EXPECT_THAT(TickAfter(absl::Milliseconds(1)),
              ElementsAre(VariantWith<LeaseOver>(LeaseOver{kHeld}),
                          VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
  const EndedWorker ended = {.worker = kA, .pid = 7, .ending = ExitSignal{9}, .cause = Cause::kLeaseOver};
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitSignal{9}}),
              ElementsAre(VariantWith<SendExit>(SendExit{ended})));
}

TEST_F(CoreTest, TheLeaseCountsFromTheSendingOfWhatWasAcknowledged) {
  Attach();
  Run(kA, 7);
  TickAfter(absl::Seconds(2));
  now_ += absl::Seconds(1);
  Do(HeartbeatAcked{1});
  Do(Broken{});
  EXPECT_EQ(core_.NextDeadline(), absl::UnixEpoch() + absl::Seconds(2) + kHeld);
}

TEST_F(CoreTest, HalfALeaseWithoutAnAnswerAsksForAnotherConnectionOnce) {
  Attach();
  TickAfter(absl::Seconds(2));
  TickAfter(absl::Seconds(2));
  EXPECT_THAT(TickAfter(absl::Seconds(1)), ElementsAre(VariantWith<DropStream>(DropStream{})));
  EXPECT_THAT(Do(Ticked{}), IsEmpty());
  Do(Broken{});
  Attach();
  EXPECT_EQ(core_.NextDeadline(), now_ + absl::Seconds(2)) << "the next heartbeat";
}

TEST_F(CoreTest, WhileConnectionsAreRefusedTheWorkersGoOnForAsLongAsTheAutonomy) {
  Attach();
  Run(kA, 7);
  Do(Broken{});
  const absl::Time end = absl::UnixEpoch() + absl::Hours(12);
  while (now_ + absl::Seconds(5) < end) {
    const absl::Time asked = now_ + absl::Seconds(5);
    now_ = asked + absl::Milliseconds(3);
    ASSERT_THAT(Do(NobodyListens{asked}), IsEmpty());
    ASSERT_EQ(core_.NextDeadline(), std::min(asked + kHeld, end));
  }
  EXPECT_THAT(TickAfter(end - now_),
              ElementsAre(VariantWith<LeaseOver>(LeaseOver{absl::Hours(12)}),
                          VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
}

TEST_F(CoreTest, WhatComesAfterTheEndOfTheLeaseGivesNothingBack) {
  Attach();
  Run(kA, 7);
  Do(Broken{});
  now_ += absl::Seconds(20);  // This process stood still.
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<LeaseOver>(LeaseOver{absl::Seconds(20)}),
                                        VariantWith<SendHello>(SendHello{.running = {{kA, 7}}}),
                                        VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
  EXPECT_THAT(Do(kWelcome), IsEmpty());
}

TEST_F(CoreTest, ThatAConnectionWasRefusedIsOfNoUseOnceItIsSilent) {
  Attach();
  Run(kA, 7);
  Do(Broken{});
  Do(NobodyListens{absl::UnixEpoch() + absl::Seconds(1)});
  now_ = absl::UnixEpoch() + absl::Seconds(5);
  EXPECT_THAT(TickAfter(kHeld - absl::Seconds(4)),
              ElementsAre(VariantWith<LeaseOver>(testing::_),
                          VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
}

TEST_F(CoreTest, AWorkerThatContinuesIsNotKilledWithTheLease) {
  Attach();
  Run(kA, 7);
  Do(StartRequested{.worker = kB, .slot = 1, .continue_when_cut_off = true});
  Do(Launched{.worker = kB, .pid = 8});
  Do(Broken{});
  EXPECT_THAT(TickAfter(kHeld), ElementsAre(VariantWith<LeaseOver>(LeaseOver{kHeld}),
                                            VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
}

TEST_F(CoreTest, AWorkerThatEndedItselfWithItsLeaseDidNotFail) {
  Attach();
  Run(kA, 7);
  const EndedWorker ended = {.worker = kA,
                             .pid = 7,
                             .ending = ExitCode{kLeaseOverExitCode},
                             .cause = Cause::kLeaseOver};
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitCode{kLeaseOverExitCode}}),
              ElementsAre(VariantWith<SendExit>(SendExit{ended})));
}

TEST_F(CoreTest, AWholeLeaseAfterTheBreakStopsTheWorkersOfAnOlderCoordinator) {
  Do(Opened{});
  Do(kOldWelcome);
  Run(kA, 7);
  Do(NobodyListens{now_});
  now_ += absl::Seconds(1);
  Do(Broken{});
  now_ += absl::Seconds(4);
  Do(Opened{});  // An attempt that fails makes the lease no longer.
  Do(Broken{});
  EXPECT_THAT(TickAfter(absl::Seconds(6)), ElementsAre(VariantWith<LeaseOver>(LeaseOver{absl::Seconds(11)}),
                                                       VariantWith<SendSignal>(SendSignal{kA, SIGTERM})));
  EXPECT_THAT(TickAfter(absl::Seconds(2)), ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
  Do(Ended{.worker = kA, .ending = ExitSignal{9}});
  EXPECT_EQ(core_.NextDeadline(), absl::InfiniteFuture()) << "it goes on trying to attach";
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(
                                SendHello{.exits = {With(Cause::kLeaseOver, {kA, 7, ExitSignal{9}, ""})}})));
}

Welcomed TakesSpools() {
  Welcomed welcome = kWelcome;
  welcome.takes_spools = true;
  return welcome;
}

TEST_F(CoreTest, WhatAWorkerLeftOnTheDiskIsToldBeforeItsExit) {
  Do(Opened{});
  Do(TakesSpools());
  Run(kA, 7);
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitCode{0}, .spooled = true}),
              ElementsAre(VariantWith<SendSpool>(SendSpool{kA})));
  EXPECT_THAT(Do(StartRequested{.worker = kA}), IsEmpty());
  EXPECT_THAT(Do(StopRequested{.worker = kA}), IsEmpty());
  EXPECT_THAT(Do(SpoolTold{kA}), ElementsAre(VariantWith<SendExit>(SendExit{Exited(kA, 7, 0)})));
  EXPECT_THAT(Do(SpoolTold{kA}), IsEmpty());
}

TEST_F(CoreTest, AWorkerThatLeftReportsRunsForTheCoordinatorUntilTheyAreTold) {
  Attach();
  Run(kA, 7);
  Do(Broken{});
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitCode{0}, .spooled = true}), IsEmpty());
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(SendHello{.running = {{kA, 7}}})));
  EXPECT_THAT(Do(TakesSpools()), ElementsAre(VariantWith<SendSpool>(SendSpool{kA})));
  Do(Broken{});
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(SendHello{.running = {{kA, 7}}})));
  EXPECT_THAT(Do(TakesSpools()), ElementsAre(VariantWith<SendSpool>(SendSpool{kA}))) << "told anew";
}

TEST_F(CoreTest, AnOlderCoordinatorIsToldTheExitAlone) {
  Attach();
  Run(kA, 7);
  Do(Broken{});
  Do(Ended{.worker = kA, .ending = ExitCode{0}, .spooled = true});
  Do(Opened{});
  EXPECT_THAT(Do(kOldWelcome), ElementsAre(VariantWith<SendExit>(SendExit{Exited(kA, 7, 0)})));
  Run(kB, 8);
  EXPECT_THAT(Do(Ended{.worker = kB, .ending = ExitCode{0}, .spooled = true}),
              ElementsAre(VariantWith<SendExit>(SendExit{Exited(kB, 8, 0)})));
}

TEST_F(CoreTest, WhatAFormerAgentsWorkerLeftIsToldToo) {
  EXPECT_THAT(Do(SpoolFound{kA}), IsEmpty());
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(SendHello{.running = {{kA, 0}}})));
  EXPECT_THAT(Do(TakesSpools()), ElementsAre(VariantWith<SendSpool>(SendSpool{kA})));
  const EndedWorker gone = {.worker = kA, .ending = ExitSignal{SIGKILL}, .cause = Cause::kNodeFault};
  EXPECT_THAT(Do(SpoolTold{kA}), ElementsAre(VariantWith<SendExit>(SendExit{gone})));
}

TEST_F(CoreTest, ACoordinatorThatIsBackInTimeStopsNothing) {
  Attach();
  Run(kA, 7);
  Do(Broken{});
  now_ += absl::Seconds(9);
  Attach();
  now_ += absl::Seconds(1);
  EXPECT_THAT(Do(Ticked{}), IsEmpty());
}

TEST_F(LocalAgentCoreTest, EndsWithItsLeaseOnceItsWorkersAreGone) {
  Attach();
  Run(kA, 7);
  Do(Broken{});
  EXPECT_THAT(TickAfter(kHeld), ElementsAre(VariantWith<LeaseOver>(LeaseOver{kHeld}),
                                            VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
  const Effects effects = Do(Ended{.worker = kA, .ending = ExitSignal{SIGKILL}});
  ASSERT_EQ(effects.size(), 1);
  EXPECT_EQ(std::get<Quit>(effects[0]).why.code(), absl::StatusCode::kUnavailable);
}

TEST_F(LocalAgentCoreTest, WithoutWorkersItDoesNotWaitForACoordinatorThatIsDown) {
  Attach();
  Do(Broken{});
  now_ += absl::Seconds(5);
  Do(NobodyListens{now_});
  const Effects effects = TickAfter(kHeld - absl::Seconds(5));
  ASSERT_EQ(effects.size(), 2);
  EXPECT_EQ(std::get<Quit>(effects[1]).why.code(), absl::StatusCode::kUnavailable);
}

TEST_F(LocalAgentCoreTest, WithWorkersOrWithExitsToTellItWaitsForACoordinatorThatIsDown) {
  Attach();
  Run(kA, 7);
  Do(Broken{});
  now_ += absl::Seconds(9);
  Do(NobodyListens{now_});
  EXPECT_EQ(core_.NextDeadline(), now_ + kHeld);
  Do(Ended{.worker = kA, .ending = ExitCode{0}});
  EXPECT_EQ(core_.NextDeadline(), now_ + kHeld);
}

TEST_F(LocalAgentCoreTest, EndsWhenItNeverFindsItsCoordinator) {
  Do(Opened{});
  Do(Broken{});
  const Effects effects = TickAfter(absl::Seconds(10));
  ASSERT_EQ(effects.size(), 2);
  EXPECT_EQ(std::get<Quit>(effects[1]).why.code(), absl::StatusCode::kUnavailable);
}

TEST_F(CoreTest, ShutdownStopsReportsAndQuits) {
  Attach();
  Run(kA, 7);
  EXPECT_THAT(Do(ShutdownRequested{}), ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGTERM})));
  EXPECT_THAT(Do(StartRequested{.worker = kB}),
              ElementsAre(VariantWith<SendExit>(
                  SendExit{{kB, 0, StartError{"the agent is stopping"}, "", Cause::kAgentStopped}})));
  Do(ExitAcked{kB});
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitCode{0}}),
              ElementsAre(VariantWith<SendExit>(
                  SendExit{With(Cause::kAgentStopped, Exited(kA, 7, 0))})));
  EXPECT_THAT(Do(ExitAcked{kA}), ElementsAre(VariantWith<Quit>(Quit{absl::OkStatus()})));
  EXPECT_THAT(Do(Ticked{}), IsEmpty()) << "nothing follows the end";
}

// Attached to a coordinator that knows of drains.
class DrainCoreTest : public CoreTest {
 protected:
  DrainCoreTest() : CoreTest({.slots = 2}) {
    Do(Opened{});
    Welcomed welcome = kWelcome;
    welcome.knows_draining = true;
    Do(welcome);
  }
  // Lets time pass with heartbeats, which are acknowledged; what else happened.
  Effects Pass(absl::Duration duration) {
    Effects all;
    for (const absl::Time end = now_ + duration; core_.NextDeadline() <= end;) {
      now_ = core_.NextDeadline();
      for (Effect& effect : Do(Ticked{})) {
        if (const auto* heartbeat = std::get_if<SendHeartbeat>(&effect)) {
          Do(HeartbeatAcked{heartbeat->sequence});
        } else {
          all.push_back(std::move(effect));
        }
      }
    }
    return all;
  }
};

TEST_F(DrainCoreTest, AShutdownSaysSoAndWaitsForTheWorkers) {
  Run(kA, 7);
  const SendDraining said{"SIGTERM", absl::Minutes(5)};
  EXPECT_THAT(Do(ShutdownRequested{}), ElementsAre(VariantWith<SendDraining>(said)));
  EXPECT_TRUE(core_.draining());
  EXPECT_THAT(Do(StartRequested{.worker = kB}),
              ElementsAre(VariantWith<SendExit>(
                  SendExit{{kB, 0, StartError{"the agent is stopping"}, "", Cause::kAgentStopped}})));
  Do(ExitAcked{kB});
  EXPECT_THAT(Pass(absl::Minutes(4)), IsEmpty());
  Do(Broken{});
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(
                                SendHello{.running = {{kA, 7}}, .draining = said})));
  Do(Ended{.worker = kA, .ending = ExitCode{0}});
  EXPECT_THAT(Do(ExitAcked{kA}), ElementsAre(VariantWith<Quit>(Quit{absl::OkStatus()})));
}

TEST_F(DrainCoreTest, AfterItsTimeTheWorkersAreStoppedUnlessTheyStillWrite) {
  Run(kA, 7);
  Do(ShutdownRequested{});
  Do(WritesSeen{100});
  EXPECT_THAT(Pass(absl::Minutes(5) - absl::Seconds(1)), IsEmpty());
  Do(WritesSeen{101});
  EXPECT_THAT(Pass(absl::Seconds(9)), IsEmpty());
  Do(WritesSeen{101});  // nothing more
  EXPECT_THAT(Pass(absl::Seconds(2)), ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGTERM})));
  EXPECT_THAT(Pass(absl::Seconds(2)), ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitSignal{9}}),
              ElementsAre(VariantWith<SendExit>(
                  SendExit{{kA, 7, ExitSignal{9}, "", Cause::kAgentStopped}})));
}

TEST_F(DrainCoreTest, WithoutACoordinatorAShutdownWaitsForItNoLongerThanALease) {
  Run(kA, 7);
  Do(Broken{});
  Do(ShutdownRequested{});
  EXPECT_THAT(Pass(absl::Seconds(9)), IsEmpty());
  Do(Opened{});
  Welcomed welcome = kWelcome;
  welcome.knows_draining = true;
  Do(welcome);
  EXPECT_THAT(Pass(absl::Minutes(4)), IsEmpty()) << "it is told with the hello";
}

TEST_F(DrainCoreTest, ADrainedNodeStartsNothingUntilItIsOpenAgainAndTheAgentStays) {
  Run(kA, 7);
  EXPECT_THAT(Do(DrainRequested{true, "muster drain by me"}), IsEmpty());
  EXPECT_THAT(Do(StartRequested{.worker = kB}),
              ElementsAre(VariantWith<SendExit>(
                  SendExit{{kB, 0, StartError{"the node is drained"}, "", Cause::kDrained}})));
  EXPECT_THAT(Pass(absl::Minutes(5)), ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGTERM})));
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitSignal{15}}),
              ElementsAre(VariantWith<SendExit>(SendExit{{kA, 7, ExitSignal{15}, "", Cause::kDrained}})));
  Do(DrainRequested{false});
  const WorkerId next = {.job = "b", .generation = 1, .rank = 0, .incarnation = "i"};
  EXPECT_THAT(Do(StartRequested{.worker = next}), ElementsAre(VariantWith<Launch>(Launch{next, 0})));
}

TEST_F(DrainCoreTest, AWorkerThatWasSentTheAgentsSignalWasStoppedWithIt) {
  Run(kA, 7);
  Do(ShutdownRequested{});
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitSignal{15}}),
              ElementsAre(VariantWith<SendExit>(
                  SendExit{{kA, 7, ExitSignal{15}, "", Cause::kAgentStopped}})));
}

TEST_F(DrainCoreTest, ACrashOfAWorkerThatIsWaitedForIsItsOwn) {
  Run(kA, 7);
  Do(ShutdownRequested{});
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitSignal{11}}),
              ElementsAre(VariantWith<SendExit>(SendExit{{kA, 7, ExitSignal{11}, ""}})));
}

TEST_F(DrainCoreTest, AProcessThatCannotBeKilledTakesItsSlotOutOfUse) {
  Run(kA, 7);
  Do(StopRequested{.worker = kA, .grace = absl::Seconds(1)});
  const SendQuarantine said{0, {kA, 7}, true};
  EXPECT_THAT(Pass(absl::Seconds(11)),
              ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGKILL}),
                          VariantWith<Hangs>(Hangs{kA}), VariantWith<SendQuarantine>(said)));
  Do(Broken{});
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(
                                SendHello{.running = {{kA, 7}}, .quarantined = {said}})));
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitSignal{9}}),
              ElementsAre(VariantWith<SendQuarantine>(SendQuarantine{0, {kA, 7}, false}),
                          VariantWith<SendExit>(
                              SendExit{{kA, 7, ExitSignal{9}, "", Cause::kStoppedAsTold}})));
}

TEST_F(DrainCoreTest, TheAgentsOwnEndDoesNotWaitForAProcessThatCannotBeKilled) {
  Run(kA, 7);
  Do(StopRequested{.worker = kA, .grace = absl::ZeroDuration()});
  Pass(absl::Seconds(10));
  EXPECT_THAT(Do(ShutdownRequested{}),
              ElementsAre(testing::_, VariantWith<Quit>(Quit{absl::OkStatus()})));
}

TEST_F(CoreTest, ShutdownDoesNotWaitForEverForTheAck) {
  Attach();
  Run(kA, 7);
  Do(ShutdownRequested{});
  Do(Ended{.worker = kA, .ending = ExitCode{0}});
  EXPECT_THAT(TickAfter(absl::Seconds(2)), ElementsAre(VariantWith<SendHeartbeat>(SendHeartbeat{1}),
                                                       VariantWith<Quit>(Quit{absl::OkStatus()})));
}

TEST_F(CoreTest, ShutdownWithoutCoordinatorOrWorkersIsImmediate) {
  EXPECT_THAT(Do(ShutdownRequested{}), ElementsAre(VariantWith<Quit>(Quit{absl::OkStatus()})));
}

TEST_F(CoreTest, ASecondShutdownKillsAtOnce) {
  Attach();
  Run(kA, 7);
  Do(ShutdownRequested{});
  EXPECT_THAT(Do(ShutdownRequested{}), ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
  EXPECT_GT(core_.NextDeadline(), now_) << "nothing is due until the worker has ended";
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitSignal{9}}),
              ElementsAre(VariantWith<SendExit>(SendExit{{kA, 7, ExitSignal{9}, "", Cause::kAgentStopped}}),
                          VariantWith<Quit>(Quit{absl::OkStatus()})));
}

TEST_F(CoreTest, ARefusedAgentStopsItsWorkersAndQuitsWithTheReason) {
  Attach();
  Run(kA, 7);
  const absl::Status stale = absl::FailedPreconditionError("a newer agent is attached");
  EXPECT_THAT(Do(Refused{stale}), ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGTERM})));
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitCode{0}}), ElementsAre(VariantWith<Quit>(Quit{stale})));
}

TEST_F(CoreTest, AfterARefusalNoHeartbeatFollows) {
  Attach();
  Run(kA, 7);
  Do(Refused{absl::FailedPreconditionError("a newer agent is attached")});
  EXPECT_THAT(TickAfter(absl::Seconds(2)), ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
  Do(Ended{.worker = kA, .ending = ExitSignal{9}});
  EXPECT_EQ(core_.NextDeadline(), absl::InfiniteFuture());
}

TEST_F(CoreTest, ARefusalWhileItShutsDownIsNoFailure) {
  Attach();
  Run(kA, 7);
  Do(ShutdownRequested{});
  Do(Refused{absl::FailedPreconditionError("a newer agent is attached")});
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitCode{0}}),
              ElementsAre(VariantWith<Quit>(Quit{absl::OkStatus()})));
}

TEST_F(CoreTest, AStartThatIsDoneWhileTheStreamIsBrokenIsToldByTheNextHello) {
  Attach();
  Do(StartRequested{.worker = kA});
  Do(Broken{});
  EXPECT_THAT(Do(Launched{.worker = kA, .pid = 7}), IsEmpty());
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(SendHello{.running = {{kA, 7}}})));
}

TEST_F(CoreTest, AnAcknowledgedExitIsRememberedWithoutItsTail) {
  Attach();
  Run(kA, 7);
  Do(Ended{.worker = kA, .ending = ExitCode{3}, .log_tail = "tail"});
  Do(ExitAcked{kA});
  EXPECT_THAT(Do(StartRequested{.worker = kA}),
              ElementsAre(VariantWith<SendExit>(SendExit{Exited(kA, 7, 3)})));
}

TEST_F(CoreTest, OnlySoManyAcknowledgedExitsAreRemembered) {
  Core core({.slots = 1, .remembered_exits = 1}, now_);
  core.Handle(Opened{}, now_);
  for (const WorkerId& worker : {kA, kB}) {
    core.Handle(StopRequested{.worker = worker}, now_);
    core.Handle(ExitAcked{worker}, now_);
  }
  EXPECT_THAT(core.Handle(StartRequested{.worker = kB}, now_), ElementsAre(VariantWith<SendExit>(testing::_)));
  EXPECT_THAT(core.Handle(StartRequested{.worker = kA}, now_), ElementsAre(VariantWith<Launch>(testing::_)));
}

}  // namespace
}  // namespace muster::agent
