// The end of an agent's workers and of the agent: after a shutdown, a drain, or a refusal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <utility>
#include <variant>

#include "worker/agent/core/core.h"
#include "worker/agent/core/core_fixture.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::VariantWith;

// The core, attached to a coordinator.
class DrainCoreTest : public CoreTest {
 protected:
  DrainCoreTest() : CoreTest({.slots = 2}) {
    Do(Opened{});
    Do(kWelcome);
  }
  // Lets time pass with heartbeats, which are acknowledged. Returns all other effects.
  Effects Pass(absl::Duration duration) {
    Effects all;
    for (const absl::Time end = now_ + duration; core_.NextDeadline() <= end;) {
      now_ = core_.NextDeadline();
      for (Effect& effect : Do(Ticked{})) {
        if (const auto* heartbeat = std::get_if<SendHeartbeat>(&effect)) {
          if (moves_) ++activity_;
          Do(HeartbeatAcked{heartbeat->sequence, activity_});
        } else {
          all.push_back(std::move(effect));
        }
      }
    }
    return all;
  }

  // The reported activity of the workers, and whether it changes with each heartbeat.
  uint64_t activity_ = 0;
  bool moves_ = false;
};

TEST_F(DrainCoreTest, AShutdownSaysSoAndWaitsForTheWorkers) {
  Run(kA, 7);
  const SendDraining said{"SIGTERM", absl::Minutes(5)};
  EXPECT_THAT(Do(ShutdownRequested{}), ElementsAre(VariantWith<SendDraining>(said)));
  EXPECT_TRUE(core_.draining());
  EXPECT_THAT(Do(StartRequested{.worker = kB}),
              ElementsAre(VariantWith<SendExit>(SendExit{
                  {kB, 0, StartError{"the agent is stopping"}, "", Cause::kAgentStopped}})));
  Do(ExitAcked{kB});
  EXPECT_THAT(Pass(absl::Minutes(4)), IsEmpty());
  Do(Broken{});
  EXPECT_THAT(
      Do(Opened{}),
      ElementsAre(VariantWith<SendHello>(SendHello{.running = {{kA, 7}}, .draining = said})));
  Do(Ended{.worker = kA, .ending = ExitCode{0}});
  EXPECT_THAT(Do(ExitAcked{kA}), ElementsAre(VariantWith<Quit>(Quit{absl::OkStatus()})));
  EXPECT_THAT(Do(Ticked{}), IsEmpty()) << "nothing follows the end";
}

TEST_F(DrainCoreTest, AtTheDeadlineTheWorkersAreStoppedUnlessTheyStillWrite) {
  Run(kA, 7);
  Do(ShutdownRequested{});
  Do(WritesSeen{100});
  EXPECT_THAT(Pass(absl::Minutes(5) - absl::Seconds(1)), IsEmpty());
  Do(WritesSeen{101});
  EXPECT_THAT(Pass(absl::Seconds(9)), IsEmpty());
  Do(WritesSeen{101});  // no progress
  EXPECT_THAT(Pass(absl::Seconds(2)),
              ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGTERM})));
  EXPECT_THAT(Pass(absl::Seconds(2)),
              ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitSignal{9}}),
              ElementsAre(VariantWith<SendExit>(
                  SendExit{{kA, 7, ExitSignal{9}, "", Cause::kAgentStopped}})));
}

// The workers are in a validation pass, or in a step of many micro-batches.
TEST_F(DrainCoreTest, WorkersThatComputeAndWriteNothingAreNotStopped) {
  Run(kA, 7);
  Do(DrainRequested{true, "muster drain by me"});
  activity_ = 5;
  moves_ = true;
  EXPECT_THAT(Pass(absl::Minutes(30)), IsEmpty());
  moves_ = false;
  EXPECT_THAT(Pass(absl::Seconds(7)), IsEmpty());
  EXPECT_THAT(Pass(absl::Seconds(5)),
              ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGTERM})));
}

TEST_F(DrainCoreTest, WorkersThatMakeNoProgressAreStoppedAtTheDeadline) {
  Run(kA, 7);
  activity_ = 5;
  Do(ShutdownRequested{});
  EXPECT_THAT(Pass(absl::Minutes(5) - absl::Seconds(2)), IsEmpty());
  EXPECT_THAT(Pass(absl::Seconds(2)),
              ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGTERM})));
}

TEST_F(DrainCoreTest, TheDeadlineIsThatOfTheRequestAndARepeatedRequestDoesNotStartItAgain) {
  Run(kA, 7);
  const DrainRequested request{true, "muster drain by me", absl::Minutes(30)};
  Do(request);
  EXPECT_THAT(Pass(absl::Minutes(20)), IsEmpty());
  Do(request);  // after the stream broke
  EXPECT_THAT(Pass(absl::Minutes(10) - absl::Seconds(2)), IsEmpty());
  EXPECT_THAT(Pass(absl::Seconds(2)),
              ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGTERM})));
}

TEST_F(DrainCoreTest, AnotherDeadlineTakesThePlaceOfTheFirst) {
  Run(kA, 7);
  Do(DrainRequested{true, "muster drain by me"});
  EXPECT_THAT(Pass(absl::Minutes(4)), IsEmpty());
  Do(DrainRequested{true, "muster drain by me", absl::Minutes(10)});
  EXPECT_THAT(Pass(absl::Minutes(10) - absl::Seconds(1)), IsEmpty());
  Do(DrainRequested{true, "muster drain by me", absl::Seconds(1)});
  EXPECT_THAT(Pass(absl::Seconds(1)),
              ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGTERM})));
}

TEST_F(CoreTest, AShutdownBetweenTheHelloAndTheWelcomeIsAnnouncedWithTheWelcome) {
  Attach();
  Run(kA, 7);
  Do(Broken{});
  Do(Opened{});
  EXPECT_THAT(Do(ShutdownRequested{}), IsEmpty());
  EXPECT_THAT(Do(kWelcome),
              ElementsAre(VariantWith<SendDraining>(SendDraining{"SIGTERM", absl::Minutes(5)})));
}

TEST_F(DrainCoreTest, WithoutACoordinatorAShutdownWaitsForItNoLongerThanALease) {
  Run(kA, 7);
  Do(Broken{});
  Do(ShutdownRequested{});
  EXPECT_THAT(Pass(absl::Seconds(9)), IsEmpty());
  Do(Opened{});
  Do(kWelcome);
  EXPECT_THAT(Pass(absl::Minutes(4)), IsEmpty()) << "it is told with the hello";
}

TEST_F(DrainCoreTest, ADrainedNodeStartsNothingUntilItIsOpenAgainAndTheAgentStays) {
  Run(kA, 7);
  EXPECT_THAT(Do(DrainRequested{true, "muster drain by me"}), IsEmpty());
  EXPECT_THAT(Do(StartRequested{.worker = kB}),
              ElementsAre(VariantWith<SendExit>(
                  SendExit{{kB, 0, StartError{"the node is drained"}, "", Cause::kDrained}})));
  EXPECT_THAT(Pass(absl::Minutes(5)),
              ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGTERM})));
  EXPECT_THAT(
      Do(Ended{.worker = kA, .ending = ExitSignal{15}}),
      ElementsAre(VariantWith<SendExit>(SendExit{{kA, 7, ExitSignal{15}, "", Cause::kDrained}})));
  Do(DrainRequested{false});
  const WorkerId next = {.job = "b", .generation = 1, .rank = 0, .incarnation = "i"};
  EXPECT_THAT(Do(StartRequested{.worker = next}),
              ElementsAre(VariantWith<Launch>(Launch{next, 0})));
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
  EXPECT_THAT(Pass(absl::Seconds(11)), ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGKILL}),
                                                   VariantWith<Hangs>(Hangs{0, {kA, 7}}),
                                                   VariantWith<SendQuarantine>(said)));
  Do(Broken{});
  EXPECT_THAT(
      Do(Opened{}),
      ElementsAre(VariantWith<SendHello>(SendHello{.running = {{kA, 7}}, .quarantined = {said}})));
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitSignal{9}}),
              ElementsAre(VariantWith<HangsNoMore>(HangsNoMore{kA}),
                          VariantWith<SendQuarantine>(SendQuarantine{0, {kA, 7}, false}),
                          VariantWith<SendExit>(
                              SendExit{{kA, 7, ExitSignal{9}, "", Cause::kStoppedAsTold}})));
}

TEST_F(CoreTest, AProcessThatAFormerAgentCouldNotEndKeepsItsSlotOutOfUseUntilItIsGone) {
  EXPECT_THAT(Do(HangingFound{1, {kB, 8}}), IsEmpty());
  const SendHello hello = {.quarantined = {{1, {kB, 8}, true}}};
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(hello)));
  Do(Broken{});
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(hello)));
  Do(kWelcome);
  EXPECT_THAT(Do(HangingGone{kB}),
              ElementsAre(VariantWith<HangsNoMore>(HangsNoMore{kB}),
                          VariantWith<SendQuarantine>(SendQuarantine{1, {kB, 8}, false})));
  EXPECT_THAT(Do(HangingGone{kB}), IsEmpty());
  Do(Broken{});
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(SendHello{})));
}

TEST_F(CoreTest, AProcessOfAFormerAgentThatEndsDuringAnOutageIsNotAnnouncedAgain) {
  Do(HangingFound{1, {kB, 8}});
  EXPECT_THAT(Do(HangingGone{kB}), ElementsAre(VariantWith<HangsNoMore>(HangsNoMore{kB})));
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(SendHello{})));
}

TEST_F(CoreTest, TheAgentsOwnEndDoesNotWaitForWhatAFormerAgentCouldNotEnd) {
  Do(HangingFound{1, {kB, 8}});
  Attach();
  EXPECT_THAT(Do(ShutdownRequested{}),
              ElementsAre(testing::_, VariantWith<Quit>(Quit{absl::OkStatus()})));
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
  EXPECT_THAT(Do(ShutdownRequested{}),
              ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGTERM}),
                          VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
  EXPECT_GT(core_.NextDeadline(), now_) << "nothing is due until the worker has ended";
  EXPECT_THAT(
      Do(Ended{.worker = kA, .ending = ExitSignal{9}}),
      ElementsAre(VariantWith<SendExit>(SendExit{{kA, 7, ExitSignal{9}, "", Cause::kAgentStopped}}),
                  VariantWith<Quit>(Quit{absl::OkStatus()})));
}

TEST_F(CoreTest, ARefusedAgentStopsItsWorkersAndQuitsWithTheReason) {
  Attach();
  Run(kA, 7);
  const absl::Status stale = absl::FailedPreconditionError("a newer agent is attached");
  EXPECT_THAT(Do(Refused{stale}), ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGTERM})));
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitCode{0}}),
              ElementsAre(VariantWith<Quit>(Quit{stale})));
}

TEST_F(CoreTest, AfterARefusalNoHeartbeatFollows) {
  Attach();
  Run(kA, 7);
  Do(Refused{absl::FailedPreconditionError("a newer agent is attached")});
  EXPECT_THAT(TickAfter(absl::Seconds(2)),
              ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
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

}  // namespace
}  // namespace muster::agent
