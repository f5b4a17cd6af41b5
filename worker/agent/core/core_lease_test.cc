// The agent's lease: its beginning, and the effects of its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <variant>

#include "worker/agent/core/core.h"
#include "worker/agent/core/core_fixture.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::VariantWith;

class LocalAgentCoreTest : public CoreTest {
 protected:
  LocalAgentCoreTest() : CoreTest({.slots = 2, .after_lease = AfterLease::kQuit}) {}
};

TEST_F(CoreTest, AStartThatIsReadWhenTheLeaseIsOverStartsNothingUntilItIsToldAgain) {
  Attach();
  now_ += kHeld;  // this process was stopped
  const StartRequested start = {.worker = kA, .slot = 0};
  EXPECT_THAT(Do(start), ElementsAre(VariantWith<LeaseOver>(LeaseOver{kHeld})));
  Do(Broken{});
  Attach();
  EXPECT_THAT(Do(start), ElementsAre(VariantWith<Launch>(Launch{kA, 0})));
}

TEST_F(CoreTest, HeartbeatsComeWhileAttachedOnly) {
  Do(Opened{});
  EXPECT_THAT(Do(Ticked{}), IsEmpty());
  Do(kWelcome);
  EXPECT_THAT(TickAfter(absl::Seconds(2)),
              ElementsAre(VariantWith<SendHeartbeat>(SendHeartbeat{1})));
  EXPECT_THAT(TickAfter(absl::Seconds(2)),
              ElementsAre(VariantWith<SendHeartbeat>(SendHeartbeat{2})));
  Do(Broken{});
  EXPECT_EQ(core_.NextDeadline(), absl::UnixEpoch() + kHeld);
}

TEST_F(CoreTest, ALeaseWithoutAnAnswerKillsTheWorkersAlsoIfTheStreamIsOpen) {
  Attach();
  Run(kA, 7);
  EXPECT_THAT(TickAfter(absl::Seconds(2)),
              ElementsAre(VariantWith<SendHeartbeat>(SendHeartbeat{1})));
  now_ += absl::Milliseconds(7749);
  Do(Ticked{});
  EXPECT_THAT(TickAfter(absl::Milliseconds(1)),
              ElementsAre(VariantWith<LeaseOver>(LeaseOver{kHeld}),
                          VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
  const EndedWorker ended = {
      .worker = kA, .pid = 7, .ending = ExitSignal{9}, .cause = Cause::kLeaseOver};
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
  EXPECT_THAT(TickAfter(end - now_), ElementsAre(VariantWith<LeaseOver>(LeaseOver{absl::Hours(12)}),
                                                 VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
}

TEST_F(CoreTest, AnEventAfterTheEndOfTheLeaseDoesNotExtendIt) {
  Attach();
  Run(kA, 7);
  Do(Broken{});
  now_ += absl::Seconds(20);  // this process was stopped
  EXPECT_THAT(Do(Opened{}), ElementsAre(VariantWith<LeaseOver>(LeaseOver{absl::Seconds(20)}),
                                        VariantWith<SendHello>(SendHello{.running = {{kA, 7}}}),
                                        VariantWith<SendSignal>(SendSignal{kA, SIGKILL})));
  EXPECT_THAT(Do(kWelcome), IsEmpty());
}

TEST_F(CoreTest, ARefusedConnectionExtendsTheLeaseOnlyOnceIfSilenceFollows) {
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
  const EndedWorker ended = {
      .worker = kA, .pid = 7, .ending = ExitCode{kLeaseOverExitCode}, .cause = Cause::kLeaseOver};
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitCode{kLeaseOverExitCode}}),
              ElementsAre(VariantWith<SendExit>(SendExit{ended})));
}

TEST_F(CoreTest, AWorkerThatEndedItselfWithItsLeaseDidSoAlsoIfItWasToldToStopMeanwhile) {
  Attach();
  Run(kA, 7);
  Do(StopRequested{.worker = kA, .grace = absl::Seconds(2)});
  const EndedWorker ended = {
      .worker = kA, .pid = 7, .ending = ExitCode{kLeaseOverExitCode}, .cause = Cause::kLeaseOver};
  EXPECT_THAT(Do(Ended{.worker = kA, .ending = ExitCode{kLeaseOverExitCode}}),
              ElementsAre(VariantWith<SendExit>(SendExit{ended})));
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

}  // namespace
}  // namespace muster::agent
