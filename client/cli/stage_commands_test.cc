// The requests and the output of `muster stage` and `muster sample`.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/synchronization/mutex.h"
#include "client/cli/cli_fixture.h"
#include "proto/muster/v1/control_service.grpc.pb.h"
#include "proto/muster/v1/operation_service.grpc.pb.h"

namespace muster::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

v1::Operation Parse(const std::string& text) {
  v1::Operation operation;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &operation)) << text;
  return operation;
}

// Answers each request with an operation that waits. The test decides how the operation ends.
class Control : public v1::ControlService::Service {
 public:
  grpc::Status RunStage(grpc::ServerContext*, const v1::RunStageRequest* request,
                        v1::Operation* response) override {
    absl::MutexLock lock(&mutex_);
    stage_ = *request;
    *response = Parse("name: 'a/1' job: 'a' kind: RUN_STAGE progress: 'waits'");
    return grpc::Status::OK;
  }
  grpc::Status Sample(grpc::ServerContext*, const v1::SampleRequest* request,
                      v1::Operation* response) override {
    absl::MutexLock lock(&mutex_);
    sample_ = *request;
    *response = Parse("name: 'a/1' job: 'a' kind: SAMPLE progress: 'waits'");
    return grpc::Status::OK;
  }
  v1::RunStageRequest stage() {
    absl::MutexLock lock(&mutex_);
    return stage_;
  }
  v1::SampleRequest sample() {
    absl::MutexLock lock(&mutex_);
    return sample_;
  }

 private:
  absl::Mutex mutex_;
  v1::RunStageRequest stage_;
  v1::SampleRequest sample_;
};

class Operations : public v1::OperationService::Service {
 public:
  grpc::Status Wait(grpc::ServerContext*, const v1::WaitOperationRequest*,
                    v1::Operation* response) override {
    absl::MutexLock lock(&mutex_);
    *response = end_;
    return grpc::Status::OK;
  }
  void EndWith(const std::string& text) {
    absl::MutexLock lock(&mutex_);
    end_ = Parse("name: 'a/1' job: 'a' done: true applied_at_step: 7 " + text);
  }

 private:
  absl::Mutex mutex_;
  v1::Operation end_;
};

class StageCommandsTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    server_ = Server::Start(ServerOptions::InsecureLoopback(),
                            {&service_, &cluster_, &control_, &operations_})
                  .value();
    environment_["MUSTER_ADDRESS"] = server_->address();
    Put("id: 'bytes' state: RUNNING spec { model { gpt2 { context: 8 } tokenizer: BYTES } }");
    Put("id: 'ids' state: PAUSED spec { model { gpt2 { context: 8 } } }");
  }
  void TearDown() override { server_.reset(); }

  Control control_;
  Operations operations_;
};

TEST_F(StageCommandsTest, AStageIsAskedForAndShownWhenItIsDone) {
  EXPECT_EQ(Muster({"stage", "bytes", "validate"}), kDone);
  EXPECT_EQ(out(), "operation a/1: run_stage: waits\n");
  EXPECT_EQ(control_.stage().stage(), "validate");
  EXPECT_EQ(control_.stage().job_id(), "bytes");
  EXPECT_FALSE(control_.stage().has_at_step());
  operations_.EndWith(
      "kind: RUN_STAGE result { stage { step: 7 stage: 'test' evaluation { "
      "loss: 0.5 samples: 3 } } }");
  EXPECT_EQ(Muster({"stage", "bytes", "test", "--at-step", "7", "--wait"}), kDone);
  EXPECT_EQ(control_.stage().at_step(), 7u);
  EXPECT_EQ(out(), "operation a/1: run_stage: done after step 7: test: loss 0.5000, 3 samples\n");
  EXPECT_EQ(Muster({"stage", "bytes"}), kUsage);
}

TEST_F(StageCommandsTest, ASampleIsAwaitedAndOnlyWhatFollowsThePromptIsPrinted) {
  operations_.EndWith(
      "kind: SAMPLE result { sample { step: 7 prompt: [97] tokens: [98, 27, 10] "
      "text: 'b\\033\\n' } }");
  EXPECT_EQ(Muster({"sample", "bytes", "--prompt", "1 2 é", "--max-tokens", "3", "--temperature",
                    "0.5", "--top-k", "4", "--seed", "18446744073709551615", "--at-step", "7"}),
            kDone);
  EXPECT_EQ(out(), "b\\x1b\n\n") << "nothing may disturb the terminal";
  EXPECT_THAT(err(), HasSubstr("3 tokens after step 7:\n"));
  const v1::SampleRequest asked = control_.sample();
  EXPECT_EQ(asked.job_id(), "bytes");
  EXPECT_EQ(asked.text(), "1 2 é");
  EXPECT_THAT(asked.tokens(), IsEmpty());
  EXPECT_EQ(asked.max_tokens(), 3u);
  EXPECT_EQ(asked.temperature(), 0.5);
  EXPECT_EQ(asked.top_k(), 4u);
  EXPECT_EQ(asked.seed(), 18446744073709551615u);
  EXPECT_EQ(asked.at_step(), 7u);
  EXPECT_FALSE(asked.request_id().empty());
  EXPECT_EQ(Muster({"sample", "bytes", "--prompt", "a", "-o", "json"}), kDone);
  v1::Operation operation;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(out(), &operation).ok()) << out();
  EXPECT_EQ(operation.result().sample().text(), "b\033\n") << "a document has it as it is";
}

TEST_F(StageCommandsTest, WithoutATokenizerPromptAndSampleAreTokenIds) {
  operations_.EndWith("kind: SAMPLE result { sample { step: 7 prompt: [1] tokens: [5, 60] } }");
  EXPECT_EQ(Muster({"sample", "ids", "--prompt", "1, 2 4294967295"}), kDone);
  EXPECT_EQ(out(), "5 60\n");
  EXPECT_THAT(control_.sample().tokens(), ElementsAre(1, 2, 4294967295));
  EXPECT_EQ(control_.sample().text(), "");
  EXPECT_EQ(control_.sample().max_tokens(), 0u);
  EXPECT_FALSE(control_.sample().has_temperature());
  EXPECT_FALSE(control_.sample().has_top_k());
  for (const char* text : {"1 two", "-1", "4294967296"}) {
    EXPECT_EQ(Muster({"sample", "ids", std::string("--prompt=") + text}), kDone);
    EXPECT_EQ(control_.sample().text(), text) << "the coordinator refuses it";
  }
}

TEST_F(StageCommandsTest, TokenIdsMayBeGivenToAModelWithATokenizer) {
  operations_.EndWith("kind: SAMPLE result { sample { step: 7 prompt: [1] tokens: 5 } }");
  EXPECT_EQ(Muster({"sample", "bytes", "--tokens", "1,2", "--max-tokens", "3"}), kDone);
  EXPECT_THAT(control_.sample().tokens(), ElementsAre(1, 2));
  EXPECT_EQ(Muster({"sample", "bytes"}), kUsage);
  EXPECT_THAT(err(), HasSubstr("--prompt is required, or --tokens"));
  EXPECT_EQ(Muster({"sample", "bytes", "--tokens", "1", "--prompt", "a"}), kUsage);
}

TEST_F(StageCommandsTest, ASampleThatFailsOrIsNotAwaitedPrintsNoText) {
  operations_.EndWith("kind: SAMPLE error { code: 'FAILED_PRECONDITION' message: 'not finite' }");
  EXPECT_EQ(Muster({"sample", "ids", "--prompt", "1"}), kOtherError);
  EXPECT_THAT(out(), IsEmpty());
  EXPECT_THAT(err(), HasSubstr("failed: not finite"));
  EXPECT_EQ(Muster({"sample", "ids", "--prompt", "1", "--no-wait"}), kDone);
  EXPECT_EQ(out(), "operation a/1: sample: waits\n");
  EXPECT_EQ(Muster({"sample", "ids"}), kUsage);
  EXPECT_EQ(Muster({"sample", "ids", "--prompt", "a\xff"}), kUsage);
  EXPECT_THAT(err(), HasSubstr("UTF-8"));
  EXPECT_EQ(Muster({"sample", "nobody", "--prompt", "1"}), kNotFound);
}

TEST_F(StageCommandsTest, TheHelpTellsTheOptions) {
  EXPECT_EQ(Muster({"--help"}), kDone);
  EXPECT_THAT(out(), AllOf(HasSubstr("\n  stage "), HasSubstr("\n  sample ")));
  EXPECT_EQ(Muster({"sample", "--help"}), kDone);
  for (const char* option : {"--prompt", "--max-tokens N", "--temperature T", "--top-k K",
                             "--seed S", "--at-step N", "--timeout", "--address"}) {
    EXPECT_THAT(out(), HasSubstr(option));
  }
}

}  // namespace
}  // namespace muster::cli
