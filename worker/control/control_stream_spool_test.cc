// Reports that cannot be sent are written to the agent's disk.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/spool/spool.h"
#include "worker/control/control_stream_fixture.h"

namespace muster::control {
namespace {

std::vector<uint64_t> SequencesIn(const std::string& path) {
  std::vector<uint64_t> sequences;
  const auto spooled = ReadSpool(path);
  if (!spooled.ok()) return sequences;
  for (const std::string& bytes : spooled->reports) {
    v1::WorkerReport report;
    EXPECT_TRUE(report.ParseFromString(bytes));
    sequences.push_back(report.sequence());
  }
  return sequences;
}

// Welcomes the worker, with spooling after an hour unless a caller asks for it.
void WelcomeForHours(ServerStream* stream) {
  v1::WorkerDirective welcome;
  welcome.mutable_welcome()->mutable_heartbeat_interval()->set_seconds(3600);
  welcome.mutable_welcome()->mutable_lease()->set_seconds(36000);
  stream->Write(welcome);
}

// Returns scripts: the first welcomes its connection and ends it after `reports`, the second
// accepts its connection and never welcomes.
std::vector<ScriptedCoordinator::Script> GoneAfter(int reports, absl::Notification* gone) {
  return {[reports](ServerStream* stream) {
            Read(stream);
            WelcomeForHours(stream);
            for (int i = 0; i < reports; ++i) NextReport(stream);
            return absl::UnavailableError("gone");
          },
          [gone](ServerStream* stream) {
            if (!gone->HasBeenNotified()) gone->Notify();
            Read(stream);
            return Drain(stream);
          }};
}

TEST(ControlStreamSpool, ReportsThatCannotBeSentAreOnTheAgentsDiskAndTheWorkerMayEnd) {
  const std::string path = std::string(getenv("TEST_TMPDIR")) + "/cannot.reports";
  ScriptedCoordinator coordinator({[](ServerStream* stream) {
                                     Read(stream);
                                     Welcome(stream);
                                     const v1::WorkerReport report = NextReport(stream).report();
                                     Ack(stream, report.sequence());
                                     NextReport(stream);
                                     return absl::UnavailableError("gone");
                                   },
                                   [](ServerStream* stream) {
                                     Read(stream);  // accepts, and never welcomes
                                     return Drain(stream);
                                   }});
  Client client(coordinator.address(), absl::Seconds(30), path);
  for (uint64_t step : {1, 2, 3}) (*client.stream)->Report(Step(step));
  EXPECT_TRUE((*client.stream)->Flush(absl::Seconds(30)).ok());
  EXPECT_EQ(SequencesIn(path), (std::vector<uint64_t>{2, 3})) << "the first one was acknowledged";
}

TEST(ControlStreamSpool, WhatIsSettledIsAcknowledgedOrOnTheAgentsDiskAtOnce) {
  const std::string path = std::string(getenv("TEST_TMPDIR")) + "/settled.reports";
  absl::Notification gone;
  ScriptedCoordinator coordinator({[](ServerStream* stream) {
                                     Read(stream);
                                     WelcomeForHours(stream);
                                     Ack(stream, NextReport(stream).report().sequence());
                                     NextReport(stream);
                                     return absl::UnavailableError("gone");
                                   },
                                   [&](ServerStream* stream) {
                                     if (!gone.HasBeenNotified()) gone.Notify();
                                     Read(stream);  // accepts, and never welcomes
                                     return Drain(stream);
                                   }});
  Client client(coordinator.address(), absl::Seconds(30), path);
  (*client.stream)->Report(Step(1));
  EXPECT_TRUE((*client.stream)->AwaitAcknowledged(absl::Seconds(30)));
  EXPECT_TRUE(SequencesIn(path).empty()) << "it is acknowledged";
  (*client.stream)->Report(Step(2));
  gone.WaitForNotification();
  EXPECT_TRUE((*client.stream)->AwaitAcknowledged(absl::Seconds(30)));
  EXPECT_EQ(SequencesIn(path), std::vector<uint64_t>{2});
}

TEST(ControlStreamSpool, WhatIsNotAcknowledgedOverAStreamThatStandsIsSettledOnTheDisk) {
  const std::string path = std::string(getenv("TEST_TMPDIR")) + "/stands.reports";
  ScriptedCoordinator coordinator({[](ServerStream* stream) {
    Read(stream);
    WelcomeForHours(stream);
    return Drain(stream);
  }});
  Client client(coordinator.address(), absl::Seconds(30), path);
  (*client.stream)->Report(Step(1));
  EXPECT_TRUE((*client.stream)->AwaitAcknowledged(absl::Hours(1)));
  EXPECT_FALSE((*client.stream)->Away());
  EXPECT_EQ(SequencesIn(path), std::vector<uint64_t>{1});
}

TEST(ControlStreamSpool, AFailedDiskIsNotWaitedForAndIsTriedAgain) {
  const std::string folder = std::string(getenv("TEST_TMPDIR")) + "/not-there-yet";
  const std::string path = folder + "/failing.reports";
  absl::Notification gone;
  ScriptedCoordinator coordinator(GoneAfter(1, &gone));
  Client client(coordinator.address(), absl::Seconds(30), path);
  (*client.stream)->Report(Step(1));
  gone.WaitForNotification();
  EXPECT_FALSE((*client.stream)->AwaitAcknowledged(absl::Hours(1)));
  (*client.stream)->Report(Step(2));
  EXPECT_FALSE((*client.stream)->AwaitAcknowledged(absl::Hours(1))) << "it is still not there";
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  while (!(*client.stream)->AwaitAcknowledged(absl::Hours(1))) std::this_thread::yield();
  EXPECT_EQ(SequencesIn(path), (std::vector<uint64_t>{1, 2}));
}

TEST(ControlStreamSpool, WithoutADiskOnlyWhatIsAcknowledgedIsSettled) {
  absl::Notification gone;
  ScriptedCoordinator coordinator(GoneAfter(0, &gone));
  Client client(coordinator.address());
  gone.WaitForNotification();
  EXPECT_TRUE((*client.stream)->AwaitAcknowledged(absl::Hours(1))) << "there is nothing to be told";
  (*client.stream)->Report(Step(1));
  EXPECT_FALSE((*client.stream)->AwaitAcknowledged(absl::Hours(1)));
}

TEST(ControlStreamSpool, ReportsThatAreAcknowledgedLaterAreRemovedFromTheDisk) {
  const std::string path = std::string(getenv("TEST_TMPDIR")) + "/told.reports";
  absl::Notification back;
  ScriptedCoordinator coordinator({[](ServerStream* stream) {
                                     Read(stream);
                                     Welcome(stream);
                                     NextReport(stream);
                                     return absl::UnavailableError("restart");
                                   },
                                   [&](ServerStream* stream) {
                                     back.WaitForNotification();
                                     Read(stream);
                                     Welcome(stream);
                                     for (int i = 0; i < 2; ++i) NextReport(stream);
                                     Ack(stream, 2);
                                     return Drain(stream);
                                   }});
  Client client(coordinator.address(), absl::Seconds(30), path);
  for (uint64_t step : {1, 2}) (*client.stream)->Report(Step(step));
  while (SequencesIn(path).size() < 2) std::this_thread::yield();
  back.Notify();
  ASSERT_TRUE((*client.stream)->Flush(absl::Seconds(30)).ok());
  while (ReadSpool(path).ok()) std::this_thread::yield();
}

}  // namespace
}  // namespace muster::control
