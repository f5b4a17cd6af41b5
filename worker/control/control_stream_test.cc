// The identity that the worker sends, its messages, and its lease.
#include "worker/control/control_stream.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/rpc/error.h"
#include "common/steady/now.h"
#include "common/steady/test_bound.h"
#include "worker/control/control_stream_fixture.h"

namespace muster::control {
namespace {

TEST(ControlStream, SendsItsIdentityAndReceivesTheWelcome) {
  v1::WorkerMessage hello;
  ScriptedCoordinator coordinator({[&](ServerStream* stream) {
    hello = Read(stream);
    Welcome(stream);
    v1::WorkerDirective directive;
    directive.mutable_rendezvous()->set_port(99);
    stream->Write(directive);
    return Drain(stream);
  }});
  Client client(coordinator.address());
  ASSERT_TRUE(client.stream.ok()) << client.stream.status();
  EXPECT_EQ(hello.hello().worker().job_id(), "job");
  EXPECT_EQ(hello.hello().pid(), 42);
  EXPECT_EQ((*client.stream)->welcome().spec().name(), "job");
  EXPECT_EQ((*client.stream)->WaitForRendezvous(absl::Seconds(30))->port(), 99u);
}

TEST(ControlStream, ReportsArriveInOrderAndFlushWaitsForTheirAcknowledgement) {
  std::vector<uint64_t> steps;
  ScriptedCoordinator coordinator({[&](ServerStream* stream) {
    Read(stream);
    Welcome(stream);
    for (int i = 0; i < 3; ++i) {
      const v1::WorkerReport report = NextReport(stream).report();
      steps.push_back(report.step().step());
      Ack(stream, report.sequence());
    }
    return Drain(stream);
  }});
  Client client(coordinator.address());
  for (uint64_t step : {10, 11, 12}) (*client.stream)->Report(Step(step));
  EXPECT_TRUE((*client.stream)->Flush(absl::Seconds(30)).ok());
  EXPECT_EQ(steps, (std::vector<uint64_t>{10, 11, 12}));
}

TEST(ControlStream, AfterABrokenConnectionUnacknowledgedReportsAreRepeated) {
  std::vector<uint64_t> repeated;
  v1::WorkerMessage second_hello;
  ScriptedCoordinator coordinator({[&](ServerStream* stream) {
                                     Read(stream);
                                     Welcome(stream);
                                     NextReport(stream);
                                     NextReport(stream);
                                     Ack(stream, 1);
                                     return absl::UnavailableError("restart");
                                   },
                                   [&](ServerStream* stream) {
                                     second_hello = Read(stream);
                                     Welcome(stream, /*acked=*/1);
                                     for (int i = 0; i < 2; ++i) {
                                       repeated.push_back(NextReport(stream).report().sequence());
                                     }
                                     Ack(stream, 3);
                                     return Drain(stream);
                                   }});
  Client client(coordinator.address());
  for (uint64_t step : {1, 2, 3}) (*client.stream)->Report(Step(step));
  EXPECT_TRUE((*client.stream)->Flush(absl::Seconds(30)).ok());
  EXPECT_EQ(repeated, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(second_hello.hello().acked_report(), 1u);
}

TEST(ControlStream, CommandsAreKeptOnceAndInOrder) {
  absl::Notification sent;
  ScriptedCoordinator coordinator({[&](ServerStream* stream) {
    Read(stream);
    Welcome(stream);
    for (uint64_t number : {1, 1, 2}) {
      v1::WorkerDirective directive;
      directive.mutable_command()->set_number(number);
      directive.mutable_command()->mutable_stop();
      stream->Write(directive);
    }
    v1::WorkerDirective recorded;
    recorded.mutable_checkpoint_recorded()->add_remove_names("step-10-g1");
    stream->Write(recorded);
    const v1::WorkerReport report = NextReport(stream).report();
    Ack(stream, report.sequence());
    return Drain(stream);
  }});
  Client client(coordinator.address());
  (*client.stream)->Report(Step(1));
  ASSERT_TRUE((*client.stream)->Flush(absl::Seconds(30)).ok());
  EXPECT_EQ((*client.stream)->NewestCommand(), 2u);
  EXPECT_EQ((*client.stream)->GetCommand(2).number(), 2u);
  EXPECT_EQ(client.removed, std::vector<std::string>{"step-10-g1"});
}

TEST(ControlStream, AnExportIsGrantedForItsPathAlone) {
  ScriptedCoordinator coordinator({[](ServerStream* stream) {
    Read(stream);
    Welcome(stream);
    v1::WorkerDirective directive;
    directive.mutable_export_granted()->set_path("/out");
    stream->Write(directive);
    return Drain(stream);
  }});
  Client client(coordinator.address());
  ASSERT_TRUE(client.stream.ok()) << client.stream.status();
  EXPECT_TRUE((*client.stream)->WaitForExportGranted("/out", absl::Seconds(30)));
  EXPECT_FALSE((*client.stream)->WaitForExportGranted("/other", absl::ZeroDuration()));
}

TEST(ControlStream, HeartbeatsAreSentAlsoWhenReportsNeverEnd) {
  absl::Notification heard;
  ScriptedCoordinator coordinator({[&](ServerStream* stream) {
    Read(stream);
    Welcome(stream);
    v1::WorkerMessage message;
    while (stream->Read(&message)) {
      if (message.has_heartbeat() && message.heartbeat().step() == 7 && !heard.HasBeenNotified()) {
        heard.Notify();
      }
    }
    return absl::OkStatus();
  }});
  Client client(coordinator.address());
  v1::WorkerHeartbeat progress;
  progress.set_step(7);
  (*client.stream)->SetProgress(progress);
  while (!heard.HasBeenNotified()) (*client.stream)->Report(Step(1));
}

TEST(ControlStream, EachHeartbeatIsMeasuredAgainAndKeepsItsProgress) {
  std::vector<v1::WorkerHeartbeat> heard;
  absl::Notification enough;
  ScriptedCoordinator coordinator({[&](ServerStream* stream) {
    Read(stream);
    Welcome(stream);
    v1::WorkerMessage message;
    while (stream->Read(&message)) {
      if (enough.HasBeenNotified() || message.heartbeat().step() != 7) continue;
      heard.push_back(message.heartbeat());
      if (heard.size() == 3) enough.Notify();
    }
    return absl::OkStatus();
  }});
  Client client(coordinator.address());
  v1::WorkerHeartbeat progress;
  progress.set_step(7);
  progress.set_progress("training");
  (*client.stream)->SetProgress(progress);
  enough.WaitForNotification();
  for (size_t i = 0; i < heard.size(); ++i) {
    EXPECT_EQ(heard[i].progress(), "training");
    EXPECT_EQ(heard[i].memory().resident_bytes(), heard[0].memory().resident_bytes() + i);
  }
}

TEST(ControlStream, AStaleProcessIsRefusedAtOnce) {
  ScriptedCoordinator coordinator({[](ServerStream* stream) {
    Read(stream);
    return MakeError(absl::StatusCode::kFailedPrecondition, "STALE_GENERATION", "too old");
  }});
  Client client(coordinator.address());
  EXPECT_EQ(ErrorReason(client.stream.status()), "STALE_GENERATION");
  EXPECT_FALSE(client.fatal.HasBeenNotified());
}

TEST(ControlStream, ARefusalBeforeAllCommandsHaveComeIsOnlyReturned) {
  ScriptedCoordinator coordinator({[](ServerStream* stream) {
                                     Read(stream);
                                     v1::WorkerDirective welcome;
                                     welcome.mutable_welcome()->mutable_lease()->set_seconds(60);
                                     welcome.mutable_welcome()->set_newest_command(1);
                                     stream->Write(welcome);
                                     return absl::UnavailableError("restart");
                                   },
                                   [](ServerStream* stream) {
                                     Read(stream);
                                     return MakeError(absl::StatusCode::kFailedPrecondition,
                                                      "STALE_INCARNATION", "given up");
                                   }});
  Client client(coordinator.address());
  EXPECT_EQ(ErrorReason(client.stream.status()), "STALE_INCARNATION");
  EXPECT_FALSE(client.fatal.HasBeenNotified());
}

TEST(ControlStream, AProcessThatBecomesStaleIsToldToEnd) {
  absl::Notification connected;
  ScriptedCoordinator coordinator({[](ServerStream* stream) {
                                     Read(stream);
                                     Welcome(stream);
                                     return absl::UnavailableError("restart");
                                   },
                                   [&](ServerStream* stream) {
                                     Read(stream);
                                     connected.WaitForNotification();
                                     return MakeError(absl::StatusCode::kFailedPrecondition,
                                                      "STALE_INCARNATION", "given up");
                                   }});
  Client client(coordinator.address());
  connected.Notify();
  ASSERT_TRUE(client.fatal.WaitForNotificationWithTimeout(kTestBound));
  EXPECT_EQ(ErrorReason(client.why), "STALE_INCARNATION");
}

TEST(ControlStream, AWholeLeaseWithoutCoordinatorIsFatal) {
  ScriptedCoordinator coordinator({[](ServerStream* stream) {
                                     Read(stream);
                                     Welcome(stream, 0, /*lease_seconds=*/0.05);
                                     return absl::UnavailableError("gone");
                                   },
                                   [](ServerStream* stream) {
                                     Read(stream);  // accepts, and never welcomes
                                     return Drain(stream);
                                   }});
  Client client(coordinator.address());
  ASSERT_TRUE(client.fatal.WaitForNotificationWithTimeout(kTestBound));
  EXPECT_EQ(client.why.code(), absl::StatusCode::kUnavailable);
}

TEST(ControlStream, ACoordinatorThatCannotWriteItsStoreKeepsTheLeaseForAsLongAsItSaysSo) {
  constexpr absl::Duration kLease = absl::Seconds(5);
  const absl::Time begun = SteadyNow();
  absl::Notification longer_than_the_lease;
  ScriptedCoordinator coordinator(
      {[](ServerStream* stream) {
         Read(stream);
         v1::WorkerDirective welcome;
         welcome.mutable_welcome()->mutable_heartbeat_interval()->set_seconds(1);
         welcome.mutable_welcome()->mutable_lease()->set_seconds(absl::ToInt64Seconds(kLease));
         welcome.mutable_welcome()->mutable_lease_margin()->set_nanos(100'000'000);
         welcome.mutable_welcome()->mutable_autonomy()->set_seconds(3600);
         stream->Write(welcome);
         return absl::UnavailableError("restart");
       },
       [&](ServerStream*) {
         const bool over = SteadyNow() > begun + 2 * kLease;
         if (over && !longer_than_the_lease.HasBeenNotified()) longer_than_the_lease.Notify();
         return MakeError(absl::StatusCode::kUnavailable, "STORE_TROUBLE", "the disk is full");
       }});
  Client client(coordinator.address());
  longer_than_the_lease.WaitForNotification();
  EXPECT_TRUE((*client.stream)->StillMine().ok());
  EXPECT_FALSE(client.fatal.HasBeenNotified());
}

TEST(ControlStream, HeartbeatsAreNumberedAndTheirAcknowledgementKeepsTheLease) {
  absl::Notification enough;
  ScriptedCoordinator coordinator({[&](ServerStream* stream) {
    Read(stream);
    v1::WorkerDirective welcome;
    welcome.mutable_welcome()->mutable_heartbeat_interval()->set_nanos(1000000);
    welcome.mutable_welcome()->mutable_lease()->set_seconds(60);
    welcome.mutable_welcome()->mutable_lease_margin()->set_seconds(1);
    stream->Write(welcome);
    uint64_t last = 0;
    v1::WorkerMessage message;
    while (stream->Read(&message)) {
      EXPECT_EQ(message.heartbeat().sequence(), ++last);
      v1::WorkerDirective ack;
      ack.mutable_heartbeat_ack()->set_sequence(last);
      stream->Write(ack);
      if (last == 3) enough.Notify();
    }
    return absl::OkStatus();
  }});
  Client client(coordinator.address());
  enough.WaitForNotification();
  EXPECT_TRUE((*client.stream)->StillMine().ok());
}

TEST(ControlStream, SilenceEndsTheLeaseAlsoIfTheStreamIsOpen) {
  ScriptedCoordinator coordinator({[](ServerStream* stream) {
    Read(stream);
    v1::WorkerDirective welcome;
    welcome.mutable_welcome()->mutable_heartbeat_interval()->set_nanos(1000000);
    welcome.mutable_welcome()->mutable_lease()->set_nanos(50'000'000);
    welcome.mutable_welcome()->mutable_lease_margin()->set_nanos(1'000'000);
    stream->Write(welcome);
    return Drain(stream);
  }});
  Client client(coordinator.address());
  ASSERT_TRUE(client.fatal.WaitForNotificationWithTimeout(kTestBound));
  EXPECT_EQ(client.why.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE((*client.stream)->StillMine().ok());
}

TEST(ControlStream, ACoordinatorThatIsDownIsWaitedForLongerThanOneThatIsSilent) {
  const auto begun = std::chrono::steady_clock::now();
  Client client("127.0.0.1:1", absl::Milliseconds(50), "", absl::Milliseconds(300));
  EXPECT_EQ(client.stream.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, std::chrono::milliseconds(300));
}

TEST(ControlStream, WhoIsNotWelcomedBeforeTheLeaseOfItsAgentIsOverEnds) {
  // The coordinator accepts the stream, and sends nothing.
  ScriptedCoordinator coordinator({[](ServerStream* stream) {
    v1::WorkerMessage message;
    while (stream->Read(&message)) {
    }
    return absl::OkStatus();
  }});
  ControlStreamOptions options{.coordinator = coordinator.address()};
  // The lease becomes longer once, and the stream must take this into account.
  int looks = 0;
  const absl::Time begun = SteadyNow();
  options.agents_lease_end = [&] { return begun + absl::Milliseconds(++looks == 1 ? 20 : 40); };
  const auto stream = ControlStream::Connect(std::move(options));
  EXPECT_EQ(stream.status().code(), absl::StatusCode::kAborted) << stream.status();
  EXPECT_GE(SteadyNow(), begun + absl::Milliseconds(40));
}

TEST(ControlStream, NobodyThereIsAnErrorThatNamesTheAddress) {
  Client client("127.0.0.1:1", absl::Milliseconds(50), "", absl::Milliseconds(50));
  EXPECT_EQ(client.stream.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(client.stream.status().message()).find("127.0.0.1:1"), std::string::npos);
}

}  // namespace
}  // namespace muster::control
