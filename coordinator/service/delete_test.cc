// The rest of a deleted job, and who sees it.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/rpc/error.h"
#include "coordinator/service/coordinator_fixture.h"

namespace muster::service {
namespace {

TEST_F(CoordinatorTest, ADeletedJobIsGoneAndItsFilesAreNamed) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  v1::DeleteJobResponse deleted;
  EXPECT_EQ(ErrorReason(FromGrpc(Delete("a", &deleted))), "JOB_NOT_FOUND");
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  Pair pair(address(), &agent, 1);
  for (uint64_t step : {2, 4}) {
    ASSERT_TRUE(pair.rank0.Report(
        FakeWorker::CheckpointWritten(step, absl::StrCat("/ckpt/a/step-", step, "-g1"))));
  }
  ASSERT_TRUE(pair.rank0.Report(FakeWorker::Step(1, 0.5)));
  const grpc::Status early = Delete("a", &deleted);
  EXPECT_EQ(early.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ErrorReason(FromGrpc(early)), "JOB_NOT_ENDED");
  v1::WorkerReport exported;
  exported.mutable_exported()->set_path("/out/model.safetensors");
  ASSERT_TRUE(pair.rank0.Report(exported));
  pair.FinishAndExit(&agent, 10);

  const std::string request_id = NewUuid();
  ASSERT_TRUE(Delete("a", &deleted, request_id).ok());
  EXPECT_EQ(deleted.job_id(), "a");
  ASSERT_EQ(deleted.checkpoints_size(), 2);
  EXPECT_EQ(deleted.checkpoints(0).path(), "/ckpt/a/step-2-g1");
  EXPECT_EQ(deleted.checkpoints(1).step(), 4);
  EXPECT_TRUE(deleted.checkpoints(1).has_create_time());
  EXPECT_EQ(deleted.exported_path(), "/out/model.safetensors");

  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(ErrorReason(FromGrpc(Stop("a", &job))), "JOB_NOT_FOUND");
    v1::DeleteJobResponse again;
    ASSERT_TRUE(Delete("a", &again, request_id).ok());
    EXPECT_EQ(again.SerializeAsString(), deleted.SerializeAsString());
    EXPECT_EQ(ErrorReason(FromGrpc(Delete("a", &again))), "JOB_NOT_FOUND");
    EXPECT_EQ(ErrorReason(FromGrpc(Delete("b", &again, request_id))), "REQUEST_ID_REUSED");
    StopCoordinator();
    StartCoordinator();
  }
  // The name is free, and a new job with it is another job.
  ASSERT_TRUE(Submit(Spec(), "a", &job).ok());
  EXPECT_EQ(job.checkpoints_size(), 0);
  EXPECT_TRUE(Steps("a").empty());
  EXPECT_TRUE(Logs("a").empty());
}

TEST_F(CoordinatorTest, ADeletionEndsTheStreamsOfTheJobAndNoOthers) {
  FakeAgent agent(address(), FakeAgent::Hello("n1", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(1), "a", &job).ok());
  ASSERT_TRUE(Submit(Spec(1), "b", &job).ok());
  const v1::WorkerIdentity id = agent.Started(1, 0);
  ASSERT_EQ(id.job_id(), "a");
  const v1::WorkerIdentity other_id = agent.Started(1, 0);
  // The log has more bytes than the transport takes from a reader that does not read.
  v1::AgentMessage lines;
  *lines.mutable_worker_log()->mutable_worker() = id;
  for (int i = 0; i < 500; ++i) lines.mutable_worker_log()->add_lines(std::string(4000, 'x'));
  for (int i = 0; i < 8; ++i) agent.Send(lines);
  FakeWorker worker(address(), id);
  ASSERT_TRUE(worker.Welcome().has_value());
  grpc::ClientContext slow, watch_a, watch_b;
  v1::StreamLogsRequest logs_request;
  logs_request.set_job_id("a");
  logs_request.set_follow(true);
  auto logs = jobs_->StreamLogs(&slow, logs_request);
  v1::LogLine line;
  ASSERT_TRUE(logs->Read(&line));
  v1::WatchJobRequest watch_request;
  watch_request.set_job_id("a");
  auto watched = jobs_->WatchJob(&watch_a, watch_request);
  watch_request.set_job_id("b");
  auto other = jobs_->WatchJob(&watch_b, watch_request);
  v1::Job seen;
  ASSERT_TRUE(watched->Read(&seen));
  ASSERT_TRUE(other->Read(&seen));

  ASSERT_TRUE(worker.Report(FakeWorker::Finished(10)));
  ASSERT_TRUE(agent.Exit(id, 0));
  v1::DeleteJobResponse deleted;
  ASSERT_TRUE(Delete("a", &deleted).ok());
  // A reader that has not received everything is told so.
  while (logs->Read(&line)) {
  }
  const grpc::Status end = logs->Finish();
  EXPECT_EQ(ErrorReason(FromGrpc(end)), "JOB_NOT_FOUND");
  EXPECT_EQ(end.error_message(), "job 'a' was deleted before everything was sent");
  // A reader that reads in time gets the job's last state, and the stream ends with OK.
  v1::Job last;
  while (watched->Read(&seen)) last = seen;
  EXPECT_EQ(last.state(), v1::Job::SUCCEEDED);
  EXPECT_TRUE(watched->Finish().ok());
  ASSERT_TRUE(Stop("b", &job).ok());
  ASSERT_TRUE(agent.Exit(other_id, 0));
  while (other->Read(&seen)) {
  }
  EXPECT_TRUE(other->Finish().ok());
}

}  // namespace
}  // namespace muster::service
