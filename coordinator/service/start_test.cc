// Jobs that begin with another job's checkpoint, and files that a generation did not finish.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/rpc/error.h"
#include "coordinator/service/coordinator_fixture.h"
#include "proto/muster/v1/control_service.grpc.pb.h"

namespace muster::service {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class StartTest : public CoordinatorTest {
 protected:
  // Makes job "a", which has checkpoints of steps 2 and 4.
  void SetUp() override {
    CoordinatorTest::SetUp();
    agent_ = std::make_unique<FakeAgent>(address(), FakeAgent::Hello("n1", 2));
    v1::Job job;
    v1::JobSpec spec = Spec();
    spec.mutable_optimizer()->mutable_sgd()->set_momentum(0.5);
    spec.set_seed(3);
    ASSERT_TRUE(Submit(spec, "a", &job).ok());
    pair_ = std::make_unique<Pair>(address(), agent_.get(), 1);
    for (const uint64_t step : {2, 4}) {
      ASSERT_TRUE(pair_->rank0.Report(
          FakeWorker::CheckpointWritten(step, absl::StrCat("/ckpt/a/step-", step, "-g1"))));
    }
  }
  void TearDown() override {
    pair_.reset();
    agent_.reset();
    CoordinatorTest::TearDown();
  }
  static v1::JobSpec From(const std::string& checkpoint) {
    v1::JobSpec spec = Spec();
    spec.mutable_start()->set_checkpoint(checkpoint);
    return spec;
  }
  // Returns the problem of such a job; empty if there is none. Both calls must give the same
  // problem.
  std::string Problem(const std::string& checkpoint) {
    grpc::ClientContext context;
    v1::ValidateJobRequest request;
    *request.mutable_spec() = From(checkpoint);
    v1::ValidateJobResponse response;
    EXPECT_TRUE(jobs_->ValidateJob(&context, request, &response).ok());
    const std::string problem = response.problems().empty() ? "" : response.problems(0).message();
    v1::Job job;
    const grpc::Status status = Submit(From(checkpoint), "other", &job);
    EXPECT_EQ(status.ok(), problem.empty());
    if (!status.ok()) {
      EXPECT_EQ(ErrorReason(FromGrpc(status)), "JOB_SPEC_INVALID");
      EXPECT_THAT(status.error_message(), HasSubstr(problem));
    }
    return problem;
  }

  std::unique_ptr<FakeAgent> agent_;
  std::unique_ptr<Pair> pair_;
};

TEST_F(StartTest, AJobIsReplacedByTheDirectoryOfItsCheckpoint) {
  v1::Job job;
  ASSERT_TRUE(Submit(From("a"), "newest", &job).ok());
  EXPECT_EQ(job.spec().start().checkpoint(), "/ckpt/a/step-4-g1");
  EXPECT_EQ(job.spec().start().what(), v1::StartSpec::WEIGHTS);
  ASSERT_TRUE(Submit(From("a@2"), "second", &job).ok());
  EXPECT_EQ(job.spec().start().checkpoint(), "/ckpt/a/step-2-g1");
  ASSERT_TRUE(Submit(From("/elsewhere/step-9-g1"), "third", &job).ok());
  EXPECT_EQ(job.spec().start().checkpoint(), "/elsewhere/step-9-g1");
}

TEST_F(StartTest, ACheckpointThatIsNotThereIsRefused) {
  EXPECT_EQ(Problem("a@3"), "found a@3, but the checkpoints of job 'a' are of steps 2, 4");
  EXPECT_EQ(Problem("b"),
            "found b, but there is no job 'b'; to name the directory of a checkpoint, write it "
            "with a '/', such as ./b");
  EXPECT_THAT(Problem("b@7"), ::testing::EndsWith("such as ./b@7"));
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "c", &job).ok());
  EXPECT_EQ(Problem("c"), "found c, but job 'c' has no checkpoint");
  EXPECT_THAT(Problem("A b"), HasSubstr("allowed: the directory of a checkpoint"));
}

v1::JobSpec Everything(v1::JobSpec spec) {
  spec.mutable_start()->set_what(v1::StartSpec::EVERYTHING);
  return spec;
}

// This host does not see the checkpoints of job "a".
TEST_F(StartTest, AJobThatGoesOnTakesWhatTheStoredJobHas) {
  v1::JobSpec spec = Everything(From("a"));
  spec.mutable_optimizer()->mutable_sgd()->set_lr(0.2);
  v1::Job job;
  ASSERT_TRUE(Submit(spec, "next", &job).ok());
  EXPECT_EQ(job.spec().start().checkpoint(), "/ckpt/a/step-4-g1");
  EXPECT_EQ(job.spec().seed(), 3u);
  EXPECT_EQ(job.spec().optimizer().sgd().momentum(), 0.5);
  EXPECT_EQ(job.spec().optimizer().sgd().lr(), 0.2);
  std::map<std::string, std::string> events;
  for (const v1::JobEvent& event : job.events()) events[event.reason()] = event.message();
  EXPECT_THAT(events["SETTING_FROM_CHECKPOINT"],
              AllOf(HasSubstr("optimizer.sgd.momentum 0.5"), HasSubstr("seed 3")));
  EXPECT_THAT(events["SETTING_DIFFERS"],
              HasSubstr("optimizer.sgd.lr: 0.2 in the job file, 0.1 in the checkpoint"));
}

TEST_F(StartTest, AJobThatGoesOnNeedsStepsAndWhatItLeavesOut) {
  v1::Job job;
  const auto refused = [&](const v1::JobSpec& spec) {
    const grpc::Status status = Submit(Everything(spec), "other", &job);
    EXPECT_FALSE(status.ok());
    return status.error_message();
  };
  v1::JobSpec spec = From("a");
  spec.mutable_stages(0)->mutable_fit()->set_steps(4);
  EXPECT_THAT(refused(spec), AllOf(HasSubstr("start.what"), HasSubstr("is of step 4"),
                                   HasSubstr("nothing would be trained")));
  EXPECT_THAT(refused(From("/elsewhere/step-9-g1")),
              AllOf(HasSubstr("start.checkpoint"), HasSubstr("/elsewhere/step-9-g1"),
                    HasSubstr("cannot be read here")));
  // Commands may have changed the rate of job "a".
  spec = From("a");
  spec.clear_optimizer();
  EXPECT_THAT(refused(spec), HasSubstr("cannot be read here"));
}

TEST_F(StartTest, AnOlderWorkerOfSuchAJobIsRefused) {
  pair_.reset();
  agent_ = std::make_unique<FakeAgent>(address(), FakeAgent::Hello("n2", 2));
  v1::Job job;
  ASSERT_TRUE(Submit(From("a"), "later", &job).ok());
  FakeWorker old(address(), agent_->Started(1, 0), 0, /*protocol=*/3);
  const auto end = old.End();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(ErrorReason(FromGrpc(*end)), "WORKER_TOO_OLD");
}

// An unfinished file is written again when the job comes to its step again.
TEST_F(StartTest, AGatherThatWasNotFinishedWaitsForItsStep) {
  const auto control = v1::ControlService::NewStub(OpenChannel(address()));
  grpc::ClientContext context;
  v1::GatherOptimizerStateRequest request;
  request.set_job_id("a");
  request.set_at_step(7);
  request.mutable_file()->set_path("/state.pt");
  v1::Operation operation;
  ASSERT_TRUE(control->GatherOptimizerState(&context, request, &operation).ok());
  EXPECT_EQ(pair_->rank0.Command()->at_step(), 7u);
  v1::WorkerReport applied;
  applied.mutable_command_applied()->set_number(1);
  applied.mutable_command_applied()->set_step(9);
  ASSERT_TRUE(pair_->rank0.Report(applied));
  FakeWorker again(address(), pair_->id1, 0);
  const auto command = again.Command();
  ASSERT_TRUE(command.has_value());
  EXPECT_TRUE(command->begun());
  EXPECT_EQ(command->at_step(), 9u);
}

}  // namespace
}  // namespace muster::service
