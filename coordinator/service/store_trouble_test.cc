// A coordinator whose store cannot be written for a while, and a coordinator with too many
// requests.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/error.h"
#include "common/steady/test_bound.h"
#include "coordinator/limits/limits.h"
#include "coordinator/service/coordinator_fixture.h"
#include "coordinator/store/faulty_store.h"

namespace muster::service {
namespace {

class TroubleTest : public CoordinatorTest {
 protected:
  std::unique_ptr<store::Store> Wrap(std::unique_ptr<store::SqliteStore> store) override {
    auto troubled = std::make_unique<store::FaultyStore>(std::move(store));
    store_in_trouble_ = troubled.get();
    return troubled;
  }
  void TearDown() override {
    store_in_trouble_->Fail(absl::OkStatus());
    store_in_trouble_->Hang(false);
  }

  bool AwaitTrouble(bool wanted) {
    for (const absl::Time end = absl::Now() + kTestBound; absl::Now() < end;) {
      if (Nodes().has_store_trouble() == wanted) return true;
    }
    return false;
  }
  static std::string ReasonOf(const grpc::Status& status) { return ErrorReason(FromGrpc(status)); }

  store::FaultyStore* store_in_trouble_ = nullptr;
};

TEST_F(TroubleTest, EverybodyIsToldAtOnceAndWhatWasAskedActsOnce) {
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  store_in_trouble_->Fail(absl::UnavailableError("disk I/O error"));
  const std::string request = NewUuid();
  const grpc::Status refused = Submit(Spec(), "b", &job, request);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(refused), "STORE_TROUBLE");
  EXPECT_NE(refused.error_message().find("disk I/O error"), std::string::npos);
  grpc::ClientContext context;
  v1::GetJobRequest get;
  get.set_job_id("a");
  EXPECT_EQ(ReasonOf(jobs_->GetJob(&context, get, &job)), "STORE_TROUBLE");
  EXPECT_EQ(Nodes().store_trouble().message(), "disk I/O error");
  EXPECT_TRUE(Nodes().store_trouble().has_since());
  store_in_trouble_->Fail(absl::OkStatus());
  ASSERT_TRUE(AwaitTrouble(false));
  ASSERT_TRUE(Submit(Spec(), "b", &job, request).ok());
  EXPECT_EQ(job.id(), "b");
}

TEST_F(TroubleTest, HeartbeatsAreAcknowledgedWhileACommitHangs) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  ASSERT_TRUE(agent.Welcomed());
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(1), "a", &job).ok());
  FakeWorker worker(address(), agent.Started(1, 0));
  ASSERT_TRUE(worker.Welcome().has_value());
  store_in_trouble_->Hang(true);
  v1::WorkerMessage report;
  *report.mutable_report() = FakeWorker::SessionStarted(0);
  report.mutable_report()->set_sequence(1);
  ASSERT_TRUE(worker.Send(report));
  for (uint64_t sequence = 1; sequence <= 20; ++sequence) {
    v1::WorkerMessage beat;
    beat.mutable_heartbeat()->set_sequence(sequence);
    ASSERT_TRUE(worker.Send(beat));
    EXPECT_TRUE(worker
                    .Take([&](const v1::WorkerDirective& d) {
                      return d.heartbeat_ack().sequence() == sequence;
                    })
                    .has_value());
    v1::AgentMessage agent_beat;
    agent_beat.mutable_heartbeat()->set_sequence(sequence);
    ASSERT_TRUE(agent.Send(agent_beat));
    EXPECT_TRUE(agent
                    .Take([&](const v1::AgentDirective& d) {
                      return d.heartbeat_ack().sequence() == sequence;
                    })
                    .has_value());
  }
  store_in_trouble_->Hang(false);
  EXPECT_TRUE(worker.Take([](const v1::WorkerDirective& d) { return d.has_report_ack(); }));
}

TEST_F(TroubleTest, JobsThatShouldLeaveAreToldSoAtOnce) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  ASSERT_TRUE(agent.Welcomed());
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(1), "a", &job).ok());
  FakeWorker worker(address(), agent.Started(1, 0));
  ASSERT_TRUE(worker.Welcome().has_value());
  ASSERT_TRUE(Submit(Spec(1), "b", &job).ok());
  FakeWorker another(address(), agent.Started(1, 0));
  ASSERT_TRUE(another.Welcome().has_value());
  store_in_trouble_->Fail(absl::UnavailableError("disk I/O error"));
  ASSERT_EQ(ReasonOf(Submit(Spec(1), "c", &job)), "STORE_TROUBLE");
  coordinator_->Drain("n1");
  EXPECT_EQ(worker.Preempted(), "musterd is being stopped");
  EXPECT_EQ(another.Preempted(), "musterd is being stopped");
  v1::AgentMessage draining;
  draining.mutable_draining()->set_reason("SIGTERM");
  ASSERT_TRUE(agent.Send(draining));
  EXPECT_EQ(worker.Preempted(), "the agent of node 'n1' is being stopped");
}

TEST_F(TroubleTest, ANodeIsInterruptedAlsoIfTheStoreHasNotWrittenYetThatItIsLeft) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 1));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(1), "a", &job).ok());
  const v1::WorkerIdentity id = agent.Started(1, 0);
  FakeWorker worker(address(), id);
  ASSERT_TRUE(worker.Welcome().has_value());
  ASSERT_TRUE(worker.Report(FakeWorker::SessionStarted(0)));
  store_in_trouble_->Hang(true);
  v1::WorkerMessage report;
  *report.mutable_report() = FakeWorker::Step(1, 0.5);
  report.mutable_report()->set_sequence(2);
  ASSERT_TRUE(worker.Send(report));
  coordinator_->Drain("n1");
  coordinator_->InterruptDrained();
  store_in_trouble_->Hang(false);
  EXPECT_TRUE(agent.ToldToStop(id));
}

TEST_F(TroubleTest, ANewPeerIsToldThatTheStoreFailsAndAcceptedOnceItWorks) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(1), "a", &job).ok());
  const v1::WorkerIdentity id = agent.Started(1, 0);
  {
    FakeWorker worker(address(), id);
    ASSERT_TRUE(worker.Welcome().has_value());
  }
  store_in_trouble_->Fail(absl::UnavailableError("disk I/O error"));
  ASSERT_EQ(ReasonOf(Submit(Spec(1), "b", &job)), "STORE_TROUBLE");
  {
    FakeWorker worker(address(), id);
    const auto end = worker.End();
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(ReasonOf(*end), "STORE_TROUBLE");
  }
  store_in_trouble_->Fail(absl::OkStatus());
  ASSERT_TRUE(AwaitTrouble(false));
  FakeWorker worker(address(), id);
  EXPECT_TRUE(worker.Welcome().has_value());
}

TEST_F(TroubleTest, ReportsWaitInTheirOrderAndNoneIsLost) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(1), "a", &job).ok());
  FakeWorker worker(address(), agent.Started(1, 0));
  ASSERT_TRUE(worker.Welcome().has_value());
  ASSERT_TRUE(worker.Report(FakeWorker::SessionStarted(0)));
  store_in_trouble_->Fail(absl::UnavailableError("disk I/O error"));
  for (uint64_t step = 1; step <= 500; ++step) {
    v1::WorkerMessage message;
    *message.mutable_report() = FakeWorker::Step(step, 0.5);
    message.mutable_report()->set_sequence(step + 1);
    ASSERT_TRUE(worker.Send(message));
  }
  ASSERT_TRUE(AwaitTrouble(true));
  store_in_trouble_->Fail(absl::OkStatus());
  EXPECT_TRUE(
      worker.Take([](const v1::WorkerDirective& d) { return d.report_ack().sequence() == 501; }));
  const auto steps = Steps("a");
  ASSERT_EQ(steps.size(), 500);
  EXPECT_EQ(steps.back().step(), 500);
}

TEST_F(TroubleTest, LogLinesAreLeftOutAndTheLogSaysSo) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(1), "a", &job).ok());
  const v1::WorkerIdentity id = agent.Started(1, 0);
  store_in_trouble_->Hang(true);
  const auto log = [&](const std::string& line) {
    v1::AgentMessage message;
    *message.mutable_worker_log()->mutable_worker() = id;
    message.mutable_worker_log()->add_lines(line);
    return agent.Send(message);
  };
  const int lines = kLimits.log_messages_in_line + 50;
  for (int i = 0; i < lines; ++i) ASSERT_TRUE(log("line"));
  // The heartbeat is taken after all lines before it.
  v1::AgentMessage beat;
  beat.mutable_heartbeat()->set_sequence(1);
  ASSERT_TRUE(agent.Send(beat));
  ASSERT_TRUE(agent.Take([](const v1::AgentDirective& d) { return d.has_heartbeat_ack(); }));
  store_in_trouble_->Hang(false);
  ASSERT_TRUE(AwaitTrouble(false));
  std::vector<std::string> found;
  for (const absl::Time end = absl::Now() + kTestBound; absl::Now() < end && found.empty();) {
    ASSERT_TRUE(log("end"));
    for (const v1::LogLine& line : Logs("a")) {
      if (line.text().find("left out") != std::string::npos) found.push_back(line.text());
    }
  }
  ASSERT_EQ(found.size(), 1);
}

TEST_F(TroubleTest, APeerWithTooManyMessagesInLineIsToRepeatThem) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(1), "a", &job).ok());
  FakeWorker worker(address(), agent.Started(1, 0));
  ASSERT_TRUE(worker.Welcome().has_value());
  store_in_trouble_->Fail(absl::UnavailableError("disk I/O error"));
  for (int i = 1; i <= kLimits.messages_in_line + 10; ++i) {
    v1::WorkerMessage message;
    message.mutable_report()->set_sequence(static_cast<uint64_t>(i));
    ASSERT_TRUE(worker.Send(message));
  }
  v1::WorkerMessage beat;
  beat.mutable_heartbeat()->set_sequence(1);
  ASSERT_TRUE(worker.Send(beat));
  ASSERT_TRUE(worker.Take([](const v1::WorkerDirective& d) { return d.has_heartbeat_ack(); }))
      << "heartbeats are still heard";
  store_in_trouble_->Fail(absl::OkStatus());
  const auto end = worker.End();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(*end), "TOO_MANY_MESSAGES");
}

TEST_F(TroubleTest, TooManyFollowersAreRefused) {
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::Job>> stream;
  };
  std::vector<std::unique_ptr<Watch>> watches;
  v1::WatchJobRequest request;
  request.set_job_id("a");
  for (size_t i = 0; i < kLimits.followers_of_job; ++i) {
    auto& watch = *watches.emplace_back(std::make_unique<Watch>());
    watch.stream = jobs_->WatchJob(&watch.context, request);
    ASSERT_TRUE(watch.stream->Read(&job)) << i;
  }
  grpc::ClientContext context;
  const auto one_more = jobs_->WatchJob(&context, request);
  EXPECT_FALSE(one_more->Read(&job));
  const grpc::Status refused = one_more->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(refused), "TOO_MANY_FOLLOWERS");
  for (const auto& watch : watches) watch->context.TryCancel();
}

TEST_F(TroubleTest, APageThatIsTooLongIsRefused) {
  grpc::ClientContext context;
  v1::ListJobsRequest request;
  request.set_page_size(kLimits.page_size + 1);
  v1::ListJobsResponse response;
  EXPECT_EQ(ReasonOf(jobs_->ListJobs(&context, request, &response)), "PAGE_SIZE_INVALID");
}

TEST_F(TroubleTest, ABackupIsTheWholeDatabase) {
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  const auto cluster = v1::ClusterService::NewStub(OpenChannel(address()));
  grpc::ClientContext context;
  const auto stream = cluster->Backup(&context, {});
  files::TempDir restored;
  std::ofstream file(restored.Path("muster.db"), std::ios::binary);
  v1::BackupChunk chunk;
  while (stream->Read(&chunk)) file << chunk.data();
  ASSERT_TRUE(stream->Finish().ok());
  file.close();
  const auto store = store::SqliteStore::Open(restored.path());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->Load()->jobs.size(), 1);
}

}  // namespace
}  // namespace muster::service
