// Commands that read a job file: submit and validate, --set, standard input.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "client/cli/cli_fixture.h"

namespace muster::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST_F(CliTest, SubmitPrintsTheIdAlone) {
  EXPECT_EQ(Muster({"submit", folder_.Path("job.yaml")}), kDone);
  EXPECT_EQ(out(), "tiny-1\n");
  EXPECT_EQ(Muster({"submit", folder_.Path("job.yaml"), "--id", "mine", "-o", "json"}), kDone);
  v1::Job job;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(out(), &job).ok()) << out();
  EXPECT_EQ(job.id(), "mine");
  EXPECT_EQ(job.spec().data().train().safetensors().path(0), folder_.Path("rows"));
}

TEST_F(CliTest, SubmitTellsTheCoordinatorsWarnings) {
  v1::ValidateJobResponse response;
  response.add_warnings("needs 4 slots; 2 are offered");
  service_.ValidateAnswers(response);
  EXPECT_EQ(Muster({"submit", folder_.Path("job.yaml")}), kDone);
  EXPECT_EQ(out(), "tiny-1\n");
  EXPECT_THAT(err(), HasSubstr("warning: tiny-1 needs 4 slots; 2 are offered\n"));
}

TEST_F(CliTest, ATakenIdIs1) {
  Put("id: 'mine' state: RUNNING");
  EXPECT_EQ(Muster({"submit", folder_.Path("job.yaml"), "--id", "mine"}), kOtherError);
  EXPECT_THAT(err(), HasSubstr("mine"));
}

TEST_F(CliTest, SubmitWaitFollowsToTheEnd) {
  service_.OnSubmit([this](const v1::Job& job) {
    v1::Job changed = job;
    changed.set_state(v1::Job::RUNNING);
    service_.Put(changed);
    changed.set_state(v1::Job::FAILED);
    changed.mutable_failure()->set_reason("out of luck");
    service_.Put(changed);
  });
  EXPECT_EQ(Muster({"submit", folder_.Path("job.yaml"), "--wait"}), kJobFailed);
  EXPECT_THAT(out(), StartsWith("tiny-1\njob tiny-1 FAILED"));
  EXPECT_THAT(err(), HasSubstr("out of luck"));
}

TEST_F(CliTest, ARefusedJobFileIs2AndNothingIsSubmitted) {
  Write("bad.yaml", std::string(kJobFile) + "sead: 1\nclip_grad_norm: no\n");
  for (const char* command : {"submit", "run", "validate"}) {
    EXPECT_EQ(Muster({command, folder_.Path("bad.yaml")}), kUsage) << command;
    EXPECT_THAT(err(), AllOf(HasSubstr("bad.yaml:8: sead: unknown key; did you mean seed?"),
                             HasSubstr("bad.yaml:9: clip_grad_norm: found 'no'")));
    EXPECT_EQ(Muster({command, folder_.Path("none.yaml")}), kUsage) << command;
    EXPECT_THAT(err(), HasSubstr("none.yaml"));
  }
  EXPECT_EQ(Muster({"list"}), kDone);
  EXPECT_THAT(out(), IsEmpty());
}

TEST_F(CliTest, ValidateNeedsNoCoordinatorAndLooksAtTheFiles) {
  environment_.erase("MUSTER_ADDRESS");
  EXPECT_EQ(Muster({"validate", folder_.Path("job.yaml")}), kDone);
  EXPECT_THAT(out(), HasSubstr("job.yaml: good: job tiny, 2 ranks, 3 steps"));
  Write("rows", "");
  EXPECT_EQ(Muster({"validate", folder_.Path("job.yaml")}), kUsage);
  EXPECT_THAT(err(), HasSubstr("job.yaml:4: data.train.safetensors.path[0]: "));
}

TEST_F(CliTest, ValidateTellsTheCoordinatorsWarningsAndProblems) {
  v1::ValidateJobResponse response;
  response.add_warnings("needs 2 slots; 0 are offered");
  service_.ValidateAnswers(response);
  EXPECT_EQ(Muster({"validate", folder_.Path("job.yaml")}), kDone);
  EXPECT_THAT(err(), HasSubstr("warning: needs 2 slots"));
  auto* problem = response.add_problems();
  problem->set_path("batch.per_rank");
  problem->set_message("too few");
  service_.ValidateAnswers(response);
  EXPECT_EQ(Muster({"validate", folder_.Path("job.yaml")}), kUsage);
  EXPECT_THAT(err(), HasSubstr("job.yaml:6: batch.per_rank: too few"));
}

TEST_F(CliTest, FilesThatAreNotHereAreOnlyAWarningWhereTheJobRunsElsewhere) {
  Write("rows", "");
  EXPECT_EQ(Muster({"validate", folder_.Path("job.yaml")}), kDone);
  EXPECT_THAT(err(), AllOf(HasSubstr("warning: data.train.safetensors.path[0]: "),
                           HasSubstr("(on this machine)")));
  server_.reset();
  Write("rows", "x");
  EXPECT_EQ(Muster({"validate", folder_.Path("job.yaml")}), kDone);
  EXPECT_THAT(err(), HasSubstr("warning: the coordinator was not asked: "));
}

TEST_F(CliTest, SetChangesTheJobFile) {
  EXPECT_EQ(Muster({"submit", "--set", "batch.per_rank=4", folder_.Path("job.yaml"), "--set",
                    "data.train.safetensors.path=[rows, /abs]", "-o", "json"}),
            kDone);
  v1::Job job;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(out(), &job).ok()) << out();
  EXPECT_EQ(job.spec().batch().per_rank(), 4);
  // Relative paths in the file are relative to the file. Relative paths on the command line are
  // relative to the current directory.
  EXPECT_EQ(job.spec().data().train().safetensors().path(0),
            (std::filesystem::current_path() / "rows").string());
  EXPECT_EQ(job.spec().data().train().safetensors().path(1), "/abs");
  for (const char* command : {"submit", "run", "validate"}) {
    EXPECT_EQ(Muster({command, folder_.Path("job.yaml"), "--set", "sead=1"}), kUsage) << command;
    EXPECT_THAT(err(), HasSubstr("\n--set sead: unknown key; did you mean seed?")) << command;
  }
}

TEST_F(CliTest, AValueThatTheCoordinatorRefusesIsNamedByItsSet) {
  v1::ValidateJobResponse response;
  auto* problem = response.add_problems();
  problem->set_path("batch.per_rank");
  problem->set_message("too few");
  service_.ValidateAnswers(response);
  EXPECT_EQ(Muster({"validate", folder_.Path("job.yaml"), "--set", "batch.per_rank=2"}), kUsage);
  EXPECT_THAT(err(), HasSubstr("\n--set batch.per_rank: too few"));
  environment_.erase("MUSTER_ADDRESS");
  EXPECT_EQ(Muster({"run", folder_.Path("job.yaml"), "--slots", "1", "--set", "world_size=3"}),
            kUsage);
  EXPECT_THAT(err(), HasSubstr("\n--set world_size: found 3; allowed: at most 1"));
}

TEST_F(CliTest, ADashReadsTheJobFileFromStandardInput) {
  in_.str(kJobFile);
  EXPECT_EQ(Muster({"submit", "-", "-o", "json"}), kDone) << err();
  v1::Job job;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(out(), &job).ok()) << out();
  EXPECT_EQ(job.spec().data().train().safetensors().path(0),
            (std::filesystem::current_path() / "rows").string());
  in_.clear();
  in_.str(std::string(kJobFile) + "sead: 1\n");
  EXPECT_EQ(Muster({"validate", "-"}), kUsage);
  EXPECT_THAT(err(), HasSubstr("standard input:8: sead: unknown key"));
  in_.clear();
  in_.str(std::string((1 << 20) + 5, ' '));
  EXPECT_EQ(Muster({"run", "-"}), kUsage);
  EXPECT_THAT(err(), HasSubstr("standard input: found more than 1048576 bytes; allowed: 1048576"));
}

}  // namespace
}  // namespace muster::cli
