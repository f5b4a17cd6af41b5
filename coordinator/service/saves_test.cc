// Failed saves and exports, as workers and clients see them.
#include <gtest/gtest.h>

#include <string>

#include "common/files/files.h"
#include "common/rpc/error.h"
#include "coordinator/service/coordinator_fixture.h"

namespace muster::service {
namespace {

v1::JobSpec SmallSpec() {
  v1::JobSpec spec = Spec();
  spec.set_world_size(1);
  return spec;
}

v1::WorkerReport SaveFailed(uint64_t step) {
  v1::WorkerReport report;
  report.mutable_checkpoint_failed()->set_step(step);
  report.mutable_checkpoint_failed()->set_reason("No space left on device");
  return report;
}

TEST_F(CoordinatorTest, SavesThatFailAreSeenAndTheLastOneFailsTheJob) {
  v1::Job job;
  ASSERT_TRUE(Submit(SmallSpec(), "a", &job).ok());
  FakeAgent agent(address(), FakeAgent::Hello("n1", 1));
  const v1::WorkerIdentity id = agent.Started(1, 0);
  FakeWorker worker(address(), id);
  ASSERT_TRUE(worker.Welcome().has_value());
  ASSERT_TRUE(worker.Report(FakeWorker::SessionStarted(0)));
  ASSERT_TRUE(worker.Report(SaveFailed(5)));
  job = Get("a");
  EXPECT_EQ(job.state(), v1::Job::RUNNING);
  EXPECT_EQ(job.reason(), "SAVE_FAILED");
  EXPECT_EQ(job.save_failure().step(), 5);
  EXPECT_EQ(job.save_failure().count(), 1);
  EXPECT_EQ(job.save_failure().message(), "No space left on device");
  EXPECT_GT(job.save_failure().time().seconds(), 0);
  ASSERT_EQ(job.events_size(), 1);
  EXPECT_EQ(job.events(0).reason(), "SAVE_FAILED");
  EXPECT_EQ(job.events(0).generation(), 1);
  EXPECT_EQ(job.events(0).step(), 5);
  EXPECT_GT(job.events(0).time().seconds(), 0);

  v1::WorkerReport failed = FakeWorker::Failed("no room", false, true);
  failed.mutable_failure()->set_kind(v1::WorkerFailure::FINAL_SAVE_FAILED);
  ASSERT_TRUE(worker.Report(failed));
  ASSERT_TRUE(agent.Exit(id, 1));
  job = Get("a");
  EXPECT_EQ(job.state(), v1::Job::FAILED);
  EXPECT_EQ(job.reason(), "FINAL_SAVE_FAILED");
}

TEST_F(CoordinatorTest, AnExportIsGrantedOnceThatIsDurable) {
  v1::Job job;
  ASSERT_TRUE(Submit(SmallSpec(), "a", &job).ok());
  FakeAgent agent(address(), FakeAgent::Hello("n1", 1));
  FakeWorker worker(address(), agent.Started(1, 0));
  ASSERT_TRUE(worker.Welcome().has_value());
  ASSERT_TRUE(worker.Report(FakeWorker::SessionStarted(0)));
  v1::WorkerReport ready;
  ready.mutable_export_ready()->set_path("/out");
  ASSERT_TRUE(worker.Report(ready));
  const auto granted =
      worker.Take([](const v1::WorkerDirective& d) { return d.has_export_granted(); });
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(granted->export_granted().path(), "/out");
}

TEST_F(CoordinatorTest, AJobThatWouldReplaceAFileOfSomebodyElseIsRefused) {
  files::TempDir folder;
  ASSERT_TRUE(files::WriteAtomically(folder.Path("theirs"), "x").ok());
  v1::JobSpec spec = SmallSpec();
  spec.mutable_export_()->set_path(folder.Path("theirs"));
  v1::Job job;
  const absl::Status refused = FromGrpc(Submit(spec, "a", &job));
  EXPECT_EQ(ErrorReason(refused), "JOB_SPEC_INVALID") << refused;
  ASSERT_EQ(Problems(refused).problems_size(), 1);
  EXPECT_EQ(Problems(refused).problems(0).path(), "export.path");

  grpc::ClientContext context;
  v1::ValidateJobRequest request;
  *request.mutable_spec() = spec;
  v1::ValidateJobResponse response;
  ASSERT_TRUE(jobs_->ValidateJob(&context, request, &response).ok());
  ASSERT_EQ(response.problems_size(), 1);
  EXPECT_EQ(response.problems(0).path(), "export.path");

  spec.mutable_export_()->set_overwrite(true);
  EXPECT_TRUE(Submit(spec, "a", &job).ok());
}

}  // namespace
}  // namespace muster::service
