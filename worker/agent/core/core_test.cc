#include "worker/agent/core/core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "common/slots/slots.h"
#include "worker/agent/core/core_fixture.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::VariantWith;

TEST_F(CoreTest, FirstHelloIsEmpty) {
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(SendHello{})));
}

TEST_F(CoreTest, StartLaunchesAndReportsStartAndExit) {
  Attach();
  EXPECT_THAT(Do(StartRequested{.worker = kA, .slot = 1}),
              ElementsAre(VariantWith<Launch>(Launch{kA, 1})));
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
  EXPECT_THAT(Do(StartRequested{.worker = kA}),
              ElementsAre(VariantWith<SendStarted>(SendStarted{{kA, 7}})));
  Do(Ended{.worker = kA, .ending = ExitCode{0}});
  EXPECT_THAT(Do(StartRequested{.worker = kA}),
              ElementsAre(VariantWith<SendExit>(SendExit{Exited(kA, 7, 0)})));
  Do(ExitAcked{kA});
  EXPECT_THAT(Do(StartRequested{.worker = kA}),
              ElementsAre(VariantWith<SendExit>(SendExit{Exited(kA, 7, 0)})));
}

TEST_F(CoreTest, AFailedLaunchIsAnExitWithItsReason) {
  Attach();
  Do(StartRequested{.worker = kA});
  EXPECT_THAT(Do(LaunchFailed{.worker = kA, .reason = "no memory"}),
              ElementsAre(VariantWith<SendExit>(
                  SendExit{{kA, 0, StartError{"no memory"}, "", Cause::kNodeFault}})));
}

TEST_F(CoreTest, ASlotBeyondTheOfferedIsAnError) {
  Attach();
  const Effects effects = Do(StartRequested{.worker = kA, .slot = 2});
  EXPECT_THAT(effects,
              ElementsAre(VariantWith<SendExit>(SendExit{
                  {kA, 0, StartError{"slot 2 was asked for, counted from 0; this agent offers 2"},
                   "", Cause::kNodeFault}})));
}

class GpuCoreTest : public CoreTest {
 protected:
  GpuCoreTest() : CoreTest({.slots = 0, .gpus = {5}}) {}
};

TEST_F(GpuCoreTest, AGpuIsASlotAndOthersAreAnError) {
  Attach();
  EXPECT_THAT(Do(StartRequested{.worker = kA, .slot = kFirstGpuSlot + 5, .threads = 3}),
              ElementsAre(VariantWith<Launch>(
                  Launch{.worker = kA, .slot = kFirstGpuSlot + 5, .threads = 3})));
  EXPECT_THAT(Do(StartRequested{.worker = kB, .slot = kFirstGpuSlot + 1}),
              ElementsAre(VariantWith<SendExit>(
                  SendExit{{kB, 0, StartError{"GPU 1 was asked for; this agent offers these: 5"},
                            "", Cause::kNodeFault}})));
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
  EXPECT_THAT(TickAfter(absl::Seconds(1)),
              ElementsAre(VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
  EXPECT_THAT(TickAfter(absl::Seconds(1)),
              ElementsAre(VariantWith<SendHeartbeat>(SendHeartbeat{1})));
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

TEST_F(CoreTest, WhatAWorkerLeftOnTheDiskIsToldBeforeItsExit) {
  Do(Opened{});
  Do(kWelcome);
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
  EXPECT_THAT(Do(kWelcome), ElementsAre(VariantWith<SendSpool>(SendSpool{kA})));
  Do(Broken{});
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(SendHello{.running = {{kA, 7}}})));
  EXPECT_THAT(Do(kWelcome), ElementsAre(VariantWith<SendSpool>(SendSpool{kA}))) << "told anew";
}

TEST_F(CoreTest, WhatAFormerAgentsWorkerLeftIsToldToo) {
  EXPECT_THAT(Do(SpoolFound{kA}), IsEmpty());
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<SendHello>(SendHello{.running = {{kA, 0}}})));
  EXPECT_THAT(Do(kWelcome), ElementsAre(VariantWith<SendSpool>(SendSpool{kA})));
  const EndedWorker gone = {
      .worker = kA, .ending = ExitSignal{SIGKILL}, .cause = Cause::kNodeFault};
  EXPECT_THAT(Do(SpoolTold{kA}), ElementsAre(VariantWith<SendExit>(SendExit{gone})));
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
  EXPECT_THAT(core.Handle(StartRequested{.worker = kB}, now_),
              ElementsAre(VariantWith<SendExit>(testing::_)));
  EXPECT_THAT(core.Handle(StartRequested{.worker = kA}, now_),
              ElementsAre(VariantWith<Launch>(testing::_)));
}

}  // namespace
}  // namespace muster::agent
