// RunStage, Sample and SkipData over gRPC: immediate refusals, the workers' commands, and their
// reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/rpc/error.h"
#include "coordinator/service/coordinator_fixture.h"
#include "proto/muster/v1/control_service.grpc.pb.h"
#include "proto/muster/v1/operation_service.grpc.pb.h"

namespace muster::service {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RequestsTest : public CoordinatorTest {
 protected:
  // Makes job "a", a gpt2 of bytes that runs and can validate.
  void SetUp() override {
    CoordinatorTest::SetUp();
    agent_ = std::make_unique<FakeAgent>(address(), FakeAgent::Hello("n1", 2));
    v1::JobSpec spec = Spec();
    auto* gpt2 = spec.mutable_model()->mutable_gpt2();
    gpt2->set_vocab_size(256);
    gpt2->set_context(16);
    gpt2->set_layers(1);
    gpt2->set_heads(1);
    gpt2->set_width(4);
    spec.mutable_model()->set_tokenizer(v1::ModelSpec::BYTES);
    for (v1::DataSet* data :
         {spec.mutable_data()->mutable_train(), spec.mutable_data()->mutable_validate()}) {
      data->mutable_tokens()->add_path("/data/tokens.bin");
      data->mutable_tokens()->set_dtype(v1::TokenData::UINT16);
    }
    v1::Job job;
    const grpc::Status submitted = Submit(spec, "a", &job);
    ASSERT_TRUE(submitted.ok()) << submitted.error_message();
    pair_ = std::make_unique<Pair>(address(), agent_.get(), 1);
    control_ = v1::ControlService::NewStub(OpenChannel(address()));
  }
  void TearDown() override {
    pair_.reset();
    agent_.reset();
    CoordinatorTest::TearDown();
  }

  grpc::Status RunStage(const std::string& stage, v1::Operation* operation,
                        const std::string& request_id = NewUuid()) {
    grpc::ClientContext context;
    v1::RunStageRequest request;
    request.set_job_id("a");
    request.set_request_id(request_id);
    request.set_stage(stage);
    return control_->RunStage(&context, request, operation);
  }
  grpc::Status Sample(const std::string& job_id, const std::string& text, v1::Operation* operation,
                      const std::string& request_id = NewUuid()) {
    grpc::ClientContext context;
    v1::SampleRequest request;
    request.set_job_id(job_id);
    request.set_request_id(request_id);
    request.set_text(text);
    return control_->Sample(&context, request, operation);
  }
  v1::Operation Wait(const std::string& name) {
    grpc::ClientContext context;
    v1::WaitOperationRequest request;
    request.set_name(name);
    v1::Operation operation;
    const auto operations = v1::OperationService::NewStub(OpenChannel(address()));
    EXPECT_TRUE(operations->Wait(&context, request, &operation).ok());
    return operation;
  }
  // Reports from rank 0 that the command took effect and how it ended.
  void End(uint64_t number, uint64_t step, const v1::OperationResult& result) {
    v1::WorkerReport applied, finished;
    applied.mutable_command_applied()->set_number(number);
    applied.mutable_command_applied()->set_step(step);
    ASSERT_TRUE(pair_->rank0.Report(applied));
    finished.mutable_command_finished()->set_number(number);
    *finished.mutable_command_finished()->mutable_result() = result;
    ASSERT_TRUE(pair_->rank0.Report(finished));
  }

  std::unique_ptr<FakeAgent> agent_;
  std::unique_ptr<Pair> pair_;
  std::unique_ptr<v1::ControlService::Stub> control_;
};

TEST_F(RequestsTest, AStageIsACommandThatEndsWithItsMetrics) {
  v1::Operation operation;
  const std::string id = NewUuid();
  ASSERT_TRUE(RunStage("validate", &operation, id).ok());
  EXPECT_EQ(operation.kind(), v1::Operation::RUN_STAGE);
  EXPECT_FALSE(operation.done());
  ASSERT_TRUE(RunStage("validate", &operation, id).ok());
  EXPECT_EQ(operation.name(), "a/1") << "a repeat acts once";
  EXPECT_EQ(pair_->rank0.Command()->run_stage().stage(), "validate");
  EXPECT_EQ(pair_->rank1.Command()->run_stage().stage(), "validate");
  v1::OperationResult result;
  result.mutable_stage()->set_step(7);
  result.mutable_stage()->mutable_evaluation()->set_loss(0.5);
  End(1, 7, result);
  const v1::Operation done = Wait("a/1");
  EXPECT_EQ(done.result().stage().evaluation().loss(), 0.5);
  EXPECT_EQ(done.applied_at_step(), 7u);
}

TEST_F(RequestsTest, SamplesAreLeftOutAndOnlyANumberOfThemIsTaken) {
  const auto skip = [&](uint64_t samples, bool dry_run, v1::Operation* operation) {
    grpc::ClientContext context;
    v1::SkipDataRequest request;
    request.set_job_id("a");
    request.set_request_id(NewUuid());
    request.set_samples(samples);
    request.set_dry_run(dry_run);
    return control_->SkipData(&context, request, operation);
  };
  v1::Operation operation;
  for (const uint64_t samples : {uint64_t{0}, (uint64_t{1} << 48) + 1}) {
    const grpc::Status status = skip(samples, false, &operation);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << samples;
    EXPECT_EQ(ErrorReason(FromGrpc(status)), "SAMPLES_INVALID") << samples;
  }
  grpc::Status status = skip(uint64_t{1} << 48, true, &operation);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(operation.kind(), v1::Operation::PLAN_SKIP_DATA);
  status = skip(24, false, &operation);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(operation.kind(), v1::Operation::SKIP_DATA);
  EXPECT_TRUE(pair_->rank0.Command()->skip_data().dry_run());
  EXPECT_EQ(pair_->rank0.Command()->skip_data().samples(), 24u);
  v1::OperationResult result;
  result.mutable_skipped_data()->set_first(8);
  End(2, 7, result);
  EXPECT_EQ(Wait("a/2").result().skipped_data().first(), 8u);
}

TEST_F(RequestsTest, AStageThatTheJobCannotRunIsRefused) {
  v1::Operation operation;
  grpc::Status status = RunStage("test", &operation);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(ErrorReason(FromGrpc(status)), "NO_DATA");
  EXPECT_THAT(status.error_message(), HasSubstr("its job file has no `data.test`"));
  for (const char* stage : {"fit", "predict", "", "validation"}) {
    status = RunStage(stage, &operation);
    EXPECT_EQ(ErrorReason(FromGrpc(status)), "STAGE_INVALID") << stage;
    EXPECT_THAT(status.error_message(), HasSubstr("expected validate or test"));
  }
}

TEST_F(RequestsTest, ASampleGoesToTheWorkersInTokensAndComesBackAsText) {
  v1::Operation operation;
  const std::string id = NewUuid();
  ASSERT_TRUE(Sample("a", "ab", &operation, id).ok());
  EXPECT_EQ(operation.kind(), v1::Operation::SAMPLE);
  ASSERT_TRUE(Sample("a", "ab", &operation, id).ok());
  EXPECT_EQ(operation.name(), "a/1");
  const auto command = pair_->rank1.Command();
  ASSERT_TRUE(command.has_value());
  EXPECT_THAT(command->sample().tokens(), ElementsAre(97, 98));
  EXPECT_EQ(command->sample().max_tokens(), 14u) << "as many as fit";
  v1::OperationResult result;
  result.mutable_sample()->set_text("c");
  End(1, 7, result);
  EXPECT_EQ(Wait("a/1").result().sample().text(), "c");
}

TEST_F(RequestsTest, ASampleThatTheModelCannotGiveIsRefused) {
  v1::Operation operation;
  EXPECT_EQ(ErrorReason(FromGrpc(Sample("a", "", &operation))), "SAMPLE_INVALID");
  EXPECT_EQ(ErrorReason(FromGrpc(Sample("nobody", "a", &operation))), "JOB_NOT_FOUND");
  v1::Job job;
  ASSERT_TRUE(Submit(Spec(), "rows", &job).ok());
  EXPECT_EQ(ErrorReason(FromGrpc(Sample("rows", "a", &operation))), "CANNOT_GENERATE");
}

// The workers are lost during the pass. The next workers run the pass at its step again, and a
// cancel can end it.
TEST_F(RequestsTest, WhatWasNotFinishedIsDoneAgainAtItsStep) {
  v1::Operation operation;
  ASSERT_TRUE(RunStage("validate", &operation).ok());
  ASSERT_TRUE(pair_->rank0.Command().has_value());
  v1::WorkerReport applied;
  applied.mutable_command_applied()->set_number(1);
  applied.mutable_command_applied()->set_step(9);
  ASSERT_TRUE(pair_->rank0.Report(applied));
  FakeWorker again(address(), pair_->id1, 0);
  const auto command = again.Command();
  ASSERT_TRUE(command.has_value());
  EXPECT_TRUE(command->begun());
  EXPECT_EQ(command->at_step(), 9u);
  EXPECT_EQ(command->run_stage().stage(), "validate");
}

}  // namespace
}  // namespace muster::service
